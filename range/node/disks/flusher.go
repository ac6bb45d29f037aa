package disks

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/task"
)

// Flusher flushes the state when much of it is not durable. The state flushes by itself only when a
// memtable is full: changes may lie in memory for days, while the logs keep all of them for the
// case of a crash.
type Flusher struct {
	node  *hosted.Node
	limit int64
	// bytes is what was applied since the last flush that was requested here.
	bytes atomic.Int64
	wake  task.Signal

	flushes prometheus.Counter
}

// NewFlusher makes a Flusher that flushes the state when limit bytes are not durable. The bytes that
// the state has flushed by itself do not count: a further flush would only make a small table.
func NewFlusher(n *hosted.Node, limit int64) *Flusher {
	return &Flusher{node: n, limit: limit, wake: task.NewSignal(),
		flushes: n.Metrics.Counter("state_flushes_total",
			"Flushes of the state that were asked for because much was not durable.")}
}

// Applied counts what an apply worker wrote.
func (f *Flusher) Applied(bytes int64) {
	if f.bytes.Add(bytes) >= f.limit && f.due() {
		f.wake.Send()
	}
}

// due reports whether a flush should be requested.
func (f *Flusher) due() bool {
	return f.bytes.Load() >= f.limit && f.node.State.UnflushedBytes() >= f.limit
}

// Run flushes until the context ends.
func (f *Flusher) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		if !f.due() {
			continue
		}
		f.bytes.Store(0)
		if err := f.node.State.AsyncFlush(); err != nil {
			f.node.Logger.Warn("flushing the state", "error", err)
			continue
		}
		f.flushes.Inc()
	}
}

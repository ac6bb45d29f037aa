package node

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/task"
)

// flusher has the state flushed when much of it is not durable. The state flushes by itself when a
// memtable is full; but then only: what was applied to it may lie in memory for days, and the logs
// keep all of it for the case of a crash.
type flusher struct {
	node  *Node
	limit int64
	// bytes is about how much was applied since the last flush that was asked for here.
	bytes atomic.Int64
	wake  task.Signal
}

func (f *flusher) init(n *Node) {
	f.node, f.limit = n, n.config.UnflushedBytes
	f.wake = task.NewSignal()
}

// applied counts what an apply worker wrote.
func (f *flusher) applied(bytes int64) {
	if f.bytes.Add(bytes) >= f.limit {
		f.wake.Send()
	}
}

func (f *flusher) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		if f.bytes.Load() < f.limit {
			continue
		}
		f.bytes.Store(0)
		if err := f.node.config.State.AsyncFlush(); err != nil {
			f.node.log.Warn("flushing the state", "error", err)
			continue
		}
		f.node.metrics.flushes.Inc()
	}
}

// sweepInterval is how often the locks of transactions are looked through for those whose client is
// gone. Together with the time after which a client counts as gone it is how long its locks stay.
const sweepInterval = time.Second

// sweepLocks looks after the locks in the partitions that are led here.
func (n *Node) sweepLocks(ctx context.Context) {
	for task.Pause(ctx, sweepInterval) == nil {
		for _, h := range n.replicas.All() {
			if h.Replica.Locked() && h.Leading.Load() && !h.Removed.Load() {
				h.Replica.SweepLocks(n.config.Clock.Physical())
			}
		}
	}
}

package node

import (
	"context"
	"runtime"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// firstLease is the node's lease until the core names another.
	firstLease = 9 * time.Second
	// heartbeatRetry is the first pause after a heartbeat that failed; it doubles up to the
	// heartbeat's interval.
	heartbeatRetry = 250 * time.Millisecond
	// heartbeatSoon is how long after the last heartbeat the next one comes if a leadership
	// changed.
	heartbeatSoon = 500 * time.Millisecond
	// heartbeatPause is the same if an order was carried out, or the core has one: at least that, and
	// heartbeatShare times as long as the last heartbeat took. So whatever is ordered, heartbeats are
	// a small part of what the core's leader does.
	heartbeatPause = 20 * time.Millisecond
	heartbeatShare = 4
)

// heartbeats renews the node's lease every third of it, and reports. Between two beats of that kind
// come urgent ones, which report only of what the core waits for.
func (n *Node) heartbeats(ctx context.Context) {
	interval := firstLease / 3
	failures, missing, answered := 0, false, n.base.Now()
	var next beats
	urgent := false
	for ctx.Err() == nil {
		began := time.Now()
		var batch reportBatch
		select {
		case <-n.reports.urge: // this one will do
		default:
		}
		if urgent {
			batch = n.reports.takeUrgent()
		} else {
			n.sampleLoads()
			batch = n.reports.take()
		}
		response, err := n.heartbeat(ctx, batch, interval)
		n.reports.done(batch, err == nil)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			n.metrics.heartbeatsFailed.Inc()
			failures++
			urgent = false
			if !missing && time.Duration(n.base.Now()-answered) >= table.MissingAfter {
				missing = true
				n.log.Warn("the consistent core does not answer heartbeats; what this node holds "+
					"is served meanwhile", "error", err)
			}
			task.Pause(ctx, min(interval, heartbeatRetry<<min(failures-1, 8)))
			continue
		}
		if missing {
			n.log.Info("the consistent core answers heartbeats again", "after",
				time.Duration(n.base.Now()-answered).Round(time.Second))
		}
		failures, missing, answered = 0, false, n.base.Now()
		n.metrics.heartbeats.Inc()
		n.metrics.reports.Add(float64(len(batch.reports)))
		if ms := response.GetLeaseMillis(); ms > 0 {
			interval = max(time.Duration(ms)*time.Millisecond/3, heartbeatSoon)
		}
		n.health.registered.Store(true)
		n.orders.take(response.GetOrders())
		if response.GetWantFull() && !batch.full {
			n.reports.wantFull(n.leaders.Led())
			urgent = false
			continue
		}
		if batch.more {
			continue
		}
		next.after(urgent, interval, time.Since(began))
		urgent = next.await(ctx, &n.reports)
	}
}

// beats says when the next heartbeat is due, and how soon others may come before it.
type beats struct {
	due time.Time
	// soon is when the next one may come because of a leadership, urgent when an urgent one may.
	soon, urgent time.Time
}

// after is for the heartbeats after one that has just ended.
func (b *beats) after(urgent bool, interval, took time.Duration) {
	now := time.Now()
	if !urgent {
		b.due, b.soon = now.Add(interval), now.Add(heartbeatSoon)
	}
	b.urgent = now.Add(max(heartbeatPause, heartbeatShare*took))
}

// await returns when the next heartbeat is to be sent, and says whether that is an urgent one.
func (b *beats) await(ctx context.Context, r *reports) (urgent bool) {
	due, soon, mayUrge := time.NewTimer(time.Until(b.due)), time.NewTimer(time.Until(b.soon)),
		time.NewTimer(time.Until(b.urgent))
	defer due.Stop()
	defer soon.Stop()
	defer mayUrge.Stop()
	var wake, urge <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due.C:
			return false
		case <-soon.C:
			wake = r.wake
		case <-mayUrge.C:
			urge = r.urge
		case <-wake:
			return false
		case <-urge:
			return time.Now().Before(b.due)
		}
	}
}

func (n *Node) heartbeat(ctx context.Context, b reportBatch,
	timeout time.Duration) (*clusterpb.HeartbeatResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return n.config.Metadata.Heartbeat(ctx, &clusterpb.HeartbeatRequest{
		Cluster: n.config.Cluster, Node: uint64(n.config.ID), Server: n.config.Server,
		Stats: n.stats(), Reports: b.reports, Full: b.full,
	})
}

// maxBroken bounds the broken replicas that a heartbeat names; when they are gone, it names others.
const maxBroken = 1000

func (n *Node) stats() *clusterpb.NodeStats {
	failed := n.lifecycle.Failed()
	slow, sync := n.host.DiskSlow()
	stats := &clusterpb.NodeStats{
		Replicas:        uint64(len(n.replicas.All())),
		Leaders:         uint64(n.leaders.Count()),
		DiskUsedBytes:   n.config.Log.UsedBytes() + n.config.State.UsedBytes(),
		DiskFreeBytes:   n.config.State.FreeBytes(),
		DiskFull:        n.base.DiskFull(),
		DiskSlow:        slow,
		SyncMicros:      uint64(sync.Microseconds()),
		ClockUnhealthy:  n.health.clockWrong.Load(),
		FailedReplicas:  uint64(len(failed)),
		Broken:          failed[:min(len(failed), maxBroken)],
		ProcessorsMicro: uint64(runtime.GOMAXPROCS(0)) * 1_000_000,
		LoadMicro:       n.processLoad.micro(),
		ClockUnixNanos:  n.clock.Wall(),
	}
	n.reportSelf(stats)
	return stats
}

// sampleLoads samples the replicas that this node leads.
func (n *Node) sampleLoads() {
	now := time.Now()
	for _, h := range n.leaders.Led() {
		if h.Load.Sample(now, h.Leading.Load(), h.Replica.Descriptor().GetGeneration(),
			h.Replica.Work()) {
			n.reports.changed(h)
		}
	}
}

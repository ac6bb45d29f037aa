package reports

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// FirstLease is the node's lease until the core sets another.
	FirstLease = 9 * time.Second
	// heartbeatRetry is the first pause after a heartbeat that failed; it doubles up to the
	// heartbeat's interval.
	heartbeatRetry = 250 * time.Millisecond
	// heartbeatSoon is the pause between a heartbeat and the next one if a leadership changed.
	heartbeatSoon = 500 * time.Millisecond
	// HeartbeatPause is the pause if an order was carried out, or the core has one: at least that
	// long, and heartbeatShare times as long as the last heartbeat took. So whatever is ordered,
	// heartbeats are a small part of the work of the core's leader.
	HeartbeatPause = 20 * time.Millisecond
	heartbeatShare = 4
)

// Run renews the node's lease every third of it, and reports. Between two such beats come urgent
// heartbeats, which report only what the core waits for.
func (r *Reports) Run(ctx context.Context) {
	n := r.node
	interval := FirstLease / 3
	failures, missing, answered := 0, false, n.Now()
	var next beats
	urgent := false
	for ctx.Err() == nil {
		began := time.Now()
		var batch reportBatch
		select {
		case <-r.urge: // the present heartbeat covers it
		default:
		}
		if urgent {
			batch = r.takeUrgent()
		} else {
			r.sampleLoads()
			batch = r.take()
		}
		response, err := r.heartbeat(ctx, batch, interval)
		r.done(batch, err == nil)
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			r.failed.Inc()
			failures++
			urgent = false
			if !missing && time.Duration(n.Now()-answered) >= table.MissingAfter {
				missing = true
				n.Logger.Warn("the consistent core does not answer heartbeats; what this node holds "+
					"is served meanwhile", "error", err)
			}
			backoff.Sleep(ctx, min(interval, heartbeatRetry<<min(failures-1, 8)))
			continue
		}
		if missing {
			n.Logger.Info("the consistent core answers heartbeats again", "after",
				time.Duration(n.Now()-answered).Round(time.Second))
		}
		failures, missing, answered = 0, false, n.Now()
		r.answered.Inc()
		r.sent.Add(float64(len(batch.reports)))
		if ms := response.GetLeaseMillis(); ms > 0 {
			interval = max(time.Duration(ms)*time.Millisecond/3, heartbeatSoon)
		}
		r.self.Take(response)
		if response.GetWantFull() && !batch.full {
			r.wantFull(n.Leaders.Led())
			urgent = false
			continue
		}
		if batch.more {
			continue
		}
		next.after(urgent, interval, time.Since(began))
		urgent = next.await(ctx, r)
	}
}

// beats says when the next heartbeat is due, and how soon others may come before it.
type beats struct {
	due time.Time
	// soon is when the next one may come because of a leadership, urgent when an urgent one may.
	soon, urgent time.Time
}

// after schedules the heartbeats after one that has just ended.
func (b *beats) after(urgent bool, interval, took time.Duration) {
	now := time.Now()
	if !urgent {
		b.due, b.soon = now.Add(interval), now.Add(heartbeatSoon)
	}
	b.urgent = now.Add(max(HeartbeatPause, heartbeatShare*took))
}

// await returns when the next heartbeat is to be sent; urgent says whether it is an urgent one.
func (b *beats) await(ctx context.Context, r *Reports) (urgent bool) {
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

func (r *Reports) heartbeat(ctx context.Context, b reportBatch,
	timeout time.Duration) (*clusterpb.HeartbeatResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.core.Heartbeat(ctx, &clusterpb.HeartbeatRequest{
		Cluster: r.cluster, Node: uint64(r.node.ID), Server: r.server,
		Stats: r.self.Stats(), Reports: b.reports, Full: b.full,
	})
}

// sampleLoads samples the replicas that this node leads.
func (r *Reports) sampleLoads() {
	now := time.Now()
	r.History.Begin(now)
	for _, h := range r.node.Leaders.Led() {
		leading, work := h.Leading.Load(), h.Replica.Work()
		if h.Load.Sample(now, leading, h.Replica.Descriptor().GetGeneration(), work) {
			r.Changed(h)
		}
		r.History.Add(h.ID, h.Load.Done(leading, work))
	}
	r.History.End()
}

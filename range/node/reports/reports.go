package reports

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// MaxReports bounds the reports in one heartbeat; the rest goes with the next, which follows at
// once.
const MaxReports = 2000

// Self is the node that reports.
type Self interface {
	// Stats returns the figures of the node.
	Stats() *clusterpb.NodeStats
	// Describe adds to the report of a partition what its order waits for, and what has split off
	// from it. It starts settling the descriptor, if that is necessary.
	Describe(*hosted.Replica, *clusterpb.PartitionReport)
	// Take takes the orders, and the parts of quotas, in the answer to a heartbeat.
	Take(*clusterpb.HeartbeatResponse)
}

// Core is what reports need of the consistent core.
type Core interface {
	// Heartbeat renews the node's lease and carries reports.
	Heartbeat(ctx context.Context, r *clusterpb.HeartbeatRequest) (*clusterpb.HeartbeatResponse,
		error)
}

// Reports holds the partitions about which the core should hear: changes in those led here, and
// those no longer led here. A beat reports those that have changed enough (newsworthy), and the
// busiest of the others; the rest when nothing changes any more, so that at rest the core's figures
// are exact.
type Reports struct {
	node *hosted.Node
	self Self
	core Core
	// cluster and server are the ids that heartbeats name beside the node's.
	cluster, server uint64

	answered, failed, sent prometheus.Counter
	// History is filled with every sample.
	History loadmeter.History

	mu struct {
		sync.Mutex
		due map[*hosted.Replica]struct{}
		// held are partitions whose reports in this beat told the core nothing new. If nothing has
		// changed since, the next beat reports them: settled.
		held, settled map[*hosted.Replica]struct{}
		// told are the partitions that the core believes to be led by this node, with the last
		// report of each that it has heard.
		told map[*hosted.Replica]*clusterpb.PartitionReport
		// urgent are the partitions that the next urgent heartbeat reports.
		urgent map[*hosted.Replica]struct{}
		// full is set if the next heartbeat invalidates earlier reports.
		full bool
	}
	// wake signals that a leadership was won or lost, which others wait to hear; urge, that an
	// order was carried out, or that the core has one.
	wake, urge task.Signal
	// more is set if the last heartbeat did not hold everything, so that the next one belongs to
	// the same beat. Only the goroutine that takes uses it.
	more bool
}

// New makes Reports to a core. cluster and server are the ids that heartbeats name beside the
// node's.
func New(n *hosted.Node, self Self, core Core, cluster, server uint64) *Reports {
	r := &Reports{node: n, self: self, core: core, cluster: cluster, server: server,
		answered: n.Metrics.Counter("heartbeats_total", "Heartbeats that the core answered."),
		failed: n.Metrics.Counter("heartbeats_failed_total",
			"Heartbeats that the core did not answer."),
		sent: n.Metrics.Counter("partition_reports_total",
			"Reports of partitions sent with heartbeats."),
		wake: task.NewSignal(), urge: task.NewSignal()}
	r.mu.due = make(map[*hosted.Replica]struct{})
	r.mu.told = make(map[*hosted.Replica]*clusterpb.PartitionReport)
	r.mu.held = make(map[*hosted.Replica]struct{})
	r.mu.settled = make(map[*hosted.Replica]struct{})
	r.mu.urgent = make(map[*hosted.Replica]struct{})
	r.mu.full = true
	return r
}

// Hurry sends the next heartbeat soon: others wait for what has changed.
func (r *Reports) Hurry() { r.wake.Send() }

// Urge sends an urgent heartbeat at once: the core has an order.
func (r *Reports) Urge() { r.urge.Send() }

// Changed marks a partition. It is called for every applied batch, and cheap if the partition is
// marked already.
func (r *Reports) Changed(h *hosted.Replica) {
	if h.Lists.Reports.Load() || !h.Lists.Reports.CompareAndSwap(false, true) {
		return
	}
	r.mu.Lock()
	r.mu.due[h] = struct{}{}
	r.mu.Unlock()
}

// ChangedLeader marks a partition whose leadership this node won or lost: the heartbeat does not
// wait for its time.
func (r *Reports) ChangedLeader(h *hosted.Replica) {
	r.Changed(h)
	r.wake.Send()
}

// CarriedOut marks a partition on which an order was carried out: the core continues when it hears
// of that, so it is reported at once.
func (r *Reports) CarriedOut(h *hosted.Replica) {
	r.Changed(h)
	r.mu.Lock()
	r.mu.urgent[h] = struct{}{}
	r.mu.Unlock()
	r.urge.Send()
}

// wantFull reports everything anew. Only the goroutine that takes calls it.
func (r *Reports) wantFull(led []*hosted.Replica) {
	r.mu.Lock()
	r.mu.full = true
	clear(r.mu.told)
	r.mu.Unlock()
	for _, h := range led {
		r.Changed(h)
	}
}

// reportBatch is the content of one heartbeat: reports, and the partition of each.
type reportBatch struct {
	hosted  []*hosted.Replica
	reports []*clusterpb.PartitionReport
	full    bool
	more    bool
}

func (b *reportBatch) add(h *hosted.Replica, r *clusterpb.PartitionReport) {
	b.hosted, b.reports = append(b.hosted, h), append(b.reports, r)
}

// take makes the reports of one heartbeat. The caller returns them to done.
func (r *Reports) take() reportBatch { return r.takeBy(r.describe) }

// takeBy is take with a function that describes a partition.
func (r *Reports) takeBy(report func(h *hosted.Replica,
	told bool) *clusterpb.PartitionReport) reportBatch {
	var b reportBatch
	var idle []weak
	r.mu.Lock()
	b.full, r.mu.full = r.mu.full, false
	if !r.more {
		r.settleLocked()
	}
	r.mu.Unlock()
	for {
		some, settled := r.next(MaxReports - len(b.reports))
		for h, told := range some {
			// Later changes are reported once more.
			h.Lists.Reports.Store(false)
			one := report(h, told != nil)
			switch {
			case one == nil:
			case settled || newsworthy(told, one) || r.sizeMatters(h, told, one):
				b.add(h, one)
			default:
				idle = append(idle, weak{h, one})
			}
		}
		if b.more = len(b.reports) == MaxReports; b.more || len(some) == 0 {
			break
		}
	}
	taken, rest := takeBusiest(idle, min(busiest, MaxReports-len(b.reports)))
	for _, w := range taken {
		b.add(w.hosted, w.report)
	}
	r.mu.Lock()
	for _, w := range rest {
		r.mu.held[w.hosted] = struct{}{}
	}
	r.mu.Unlock()
	r.more = b.more
	return b
}

// takeUrgent is take for an urgent heartbeat: it has only what was carried out, and belongs to no
// beat, so that many urgent heartbeats do not make the rest settle.
func (r *Reports) takeUrgent() reportBatch {
	var b reportBatch
	for h, told := range r.nextUrgent(MaxReports) {
		h.Lists.Reports.Store(false)
		if one := r.describe(h, told != nil); one != nil {
			b.add(h, one)
		}
	}
	return b
}

func (r *Reports) nextUrgent(n int) map[*hosted.Replica]*clusterpb.PartitionReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	some := make(map[*hosted.Replica]*clusterpb.PartitionReport, min(len(r.mu.urgent), n))
	for h := range r.mu.urgent {
		if len(some) == n {
			r.urge.Send()
			break
		}
		delete(r.mu.urgent, h)
		delete(r.mu.due, h)
		delete(r.mu.held, h)
		delete(r.mu.settled, h)
		some[h] = r.mu.told[h]
	}
	return some
}

// settleLocked begins a beat.
func (r *Reports) settleLocked() {
	for h := range r.mu.held {
		if _, again := r.mu.due[h]; !again {
			r.mu.settled[h] = struct{}{}
		}
	}
	clear(r.mu.held)
}

// next takes at most n of the partitions that are due, or else of those that have settled, each
// with the last report that the core has heard.
func (r *Reports) next(n int) (some map[*hosted.Replica]*clusterpb.PartitionReport, settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.mu.due
	if len(from) == 0 {
		from, settled = r.mu.settled, true
	}
	some = make(map[*hosted.Replica]*clusterpb.PartitionReport, min(len(from), n))
	for h := range from {
		if len(some) == n {
			break
		}
		delete(from, h)
		delete(r.mu.urgent, h)
		some[h] = r.mu.told[h]
	}
	return some, settled
}

// describe returns the report of a partition; nil if there is nothing to report.
func (r *Reports) describe(h *hosted.Replica, told bool) *clusterpb.PartitionReport {
	d := h.Replica.Descriptor()
	p := &clusterpb.PartitionReport{Partition: uint64(h.ID), Generation: d.GetGeneration(),
		Membership: d.GetMembership()}
	if (d.GetMembership() > group.FoundingMembership || d.GetGeneration() > 1) &&
		h.Replica.Settled() {
		p.Described = d
	}
	r.self.Describe(h, p)
	_, p.Term = h.Group.Leader()
	if !h.Leading.Load() || h.Removed.Load() {
		if !told {
			return nil
		}
		p.Lost = true
		return p
	}
	stats := h.Replica.Stats()
	p.LiveKeys, p.SizeBytes = stats.LiveKeys, stats.Bytes
	if stats.Versions > 0 {
		p.LiveBytes = uint64(float64(stats.Bytes) * float64(stats.LiveKeys) / float64(stats.Versions))
	}
	h.Load.Describe(p)
	return p
}

// done notes whether the core has heard a batch.
func (r *Reports) done(b reportBatch, heard bool) {
	if !heard {
		for _, h := range b.hosted {
			r.Changed(h)
		}
		r.mu.Lock()
		r.mu.full = r.mu.full || b.full
		r.mu.Unlock()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, h := range b.hosted {
		if b.reports[i].Lost {
			delete(r.mu.told, h)
		} else {
			r.mu.told[h] = b.reports[i]
		}
	}
}

// Forget drops a replica that was removed.
func (r *Reports) Forget(h *hosted.Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.due, h)
	delete(r.mu.held, h)
	delete(r.mu.settled, h)
	delete(r.mu.told, h)
	delete(r.mu.urgent, h)
}

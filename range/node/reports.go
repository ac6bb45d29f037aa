package node

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxReports bounds the reports in one heartbeat; what is left goes with the next, which follows at
// once.
const maxReports = 2000

// reports are the partitions of which the core should hear something: what changed in those led
// here, and which are not led here any more.
type reports struct {
	mu struct {
		sync.Mutex
		due map[*hosted]struct{}
		// told are the partitions of which the core believes that this node leads them.
		told map[*hosted]struct{}
		// full: the next heartbeat says that what was reported before it does not count.
		full bool
	}
	// wake: a leadership was won or lost, which others wait to hear.
	wake chan struct{} // capacity 1
}

func (r *reports) init() {
	r.mu.due = make(map[*hosted]struct{})
	r.mu.told = make(map[*hosted]struct{})
	r.mu.full = true
	r.wake = make(chan struct{}, 1)
}

// changed marks a partition. It is called for every applied batch, and cheap when the partition is
// marked already.
func (r *reports) changed(h *hosted) {
	if h.reportDue.Load() || !h.reportDue.CompareAndSwap(false, true) {
		return
	}
	r.mu.Lock()
	r.mu.due[h] = struct{}{}
	r.mu.Unlock()
}

// changedLeader marks a partition whose leadership this node won or lost: the heartbeat does not
// wait for its time.
func (r *reports) changedLeader(h *hosted) {
	r.changed(h)
	signal(r.wake)
}

// wantFull has everything reported anew.
func (r *reports) wantFull(led []*hosted) {
	r.mu.Lock()
	r.mu.full = true
	clear(r.mu.told)
	r.mu.Unlock()
	for _, h := range led {
		r.changed(h)
	}
}

// reportBatch is what one heartbeat carries.
type reportBatch struct {
	hosted  []*hosted
	reports []*clusterpb.PartitionReport
	full    bool
	more    bool
}

// take makes the reports of one heartbeat. It is given back to done.
func (r *reports) take() reportBatch {
	var b reportBatch
	r.mu.Lock()
	b.full, r.mu.full = r.mu.full, false
	told := make(map[*hosted]bool, min(len(r.mu.due), maxReports))
	for h := range r.mu.due {
		if len(b.hosted) == maxReports {
			b.more = true
			break
		}
		delete(r.mu.due, h)
		_, told[h] = r.mu.told[h]
		b.hosted = append(b.hosted, h)
	}
	r.mu.Unlock()
	for _, h := range b.hosted {
		// What changes from here on is reported once more.
		h.reportDue.Store(false)
		if report := h.report(told[h]); report != nil {
			b.reports = append(b.reports, report)
		}
	}
	return b
}

// report describes the partition, if the core has anything to hear of it.
func (h *hosted) report(told bool) *clusterpb.PartitionReport {
	d := h.replica.Descriptor()
	r := &clusterpb.PartitionReport{Partition: uint64(h.id), Generation: d.GetGeneration(),
		Membership: d.GetMembership()}
	if (d.GetMembership() > group.FoundingMembership || d.GetGeneration() > 1) &&
		h.replica.Settled() {
		r.Described = d
	}
	_, r.Term = h.group.Leader()
	if !h.leading.Load() || h.removed.Load() {
		if !told {
			return nil
		}
		r.Lost = true
		return r
	}
	stats := h.replica.Stats()
	r.LiveKeys, r.SizeBytes = stats.LiveKeys, stats.Bytes
	r.LeaderLoadMicro, r.FollowerLoadMicro = h.load.leaderMicro.Load(), h.load.followerMicro.Load()
	r.MeasuredSeconds = h.load.measuredSeconds.Load()
	if o := h.order.Load(); o != nil {
		r.WaitsFor = o.waitsFor()
	}
	return r
}

// done takes back what the core has heard, or has not.
func (r *reports) done(b reportBatch, heard bool) {
	if !heard {
		for _, h := range b.hosted {
			r.changed(h)
		}
		r.mu.Lock()
		r.mu.full = r.mu.full || b.full
		r.mu.Unlock()
		return
	}
	lost := make(map[uint64]bool)
	for _, report := range b.reports {
		lost[report.Partition] = report.Lost
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range b.hosted {
		if gone, reported := lost[uint64(h.id)]; reported && !gone {
			r.mu.told[h] = struct{}{}
		} else {
			delete(r.mu.told, h)
		}
	}
}

// forget drops a replica that was removed.
func (r *reports) forget(h *hosted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.due, h)
	delete(r.mu.told, h)
}

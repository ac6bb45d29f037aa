package reports

import (
	"cmp"
	"strings"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Reports is what the core's leader knows from heartbeats and does not store.
type Reports struct {
	mu struct {
		sync.Mutex
		// term is the term of the leadership during which this was learned.
		term       uint64
		nodes      map[keys.NodeID]*node
		partitions map[keys.PartitionID]*clusterpb.PartitionReport
		leaders    map[keys.PartitionID]keys.NodeID
		// tabled are the epochs of descriptors that were reported and that the table has.
		tabled map[keys.PartitionID]epoch
		// described are the newest reported descriptors that are not known to be in the table;
		// operators are those that are under way, as the stepper has last read them.
		described map[keys.PartitionID]*Claim
		operators map[keys.PartitionID]*serverpb.Operator
		// broken are the nodes whose replica of a partition is broken; news are the partitions with
		// reports that the planner has not heard.
		broken map[keys.PartitionID]map[keys.NodeID]bool
		news   map[keys.PartitionID]struct{}
		// started is when nodes have registered, which they do at their start; monotonic.
		started map[keys.NodeID]int64
		// wake are the nodes that have to be told of orders, waking those that are being told.
		wake, waking map[keys.NodeID]struct{}
	}
	// woken: there are nodes to be told. Capacity 1.
	woken chan struct{}
}

// epoch is that of a descriptor.
type epoch struct{ generation, membership uint64 }

func epochOf(d *clusterpb.Partition) epoch { return epoch{d.Generation, d.Membership} }

type node struct {
	stats *clusterpb.NodeStats
	// statsAt is when stats came; monotonic.
	statsAt int64
	// complete is set if the node has sent all its reports since this leadership began.
	complete bool
	led      map[keys.PartitionID]struct{}
	// broken are the partitions whose replica on the node is broken.
	broken []uint64
	// ahead is how far the node's clock is ahead of this process's monotonic clock, at least; nil:
	// the node does not trust its clock, or has not reported it.
	ahead *int64
}

// New makes what a member knows that never led.
func New() *Reports {
	s := &Reports{woken: make(chan struct{}, 1)}
	s.mu.waking = map[keys.NodeID]struct{}{}
	s.resetLocked(0)
	return s
}

func (s *Reports) resetLocked(term uint64) {
	s.mu.term = term
	s.mu.nodes = map[keys.NodeID]*node{}
	s.mu.partitions = map[keys.PartitionID]*clusterpb.PartitionReport{}
	s.mu.leaders = map[keys.PartitionID]keys.NodeID{}
	s.mu.described = map[keys.PartitionID]*Claim{}
	s.mu.tabled = map[keys.PartitionID]epoch{}
	s.mu.broken = map[keys.PartitionID]map[keys.NodeID]bool{}
	s.mu.news = map[keys.PartitionID]struct{}{}
	s.mu.wake = map[keys.NodeID]struct{}{}
	s.mu.started = map[keys.NodeID]int64{}
	if s.mu.operators == nil {
		s.mu.operators = map[keys.PartitionID]*serverpb.Operator{}
	}
}

// BeginTerm forgets all reports from before the leadership of a term, unless the first heartbeat
// during it has done so.
func (s *Reports) BeginTerm(term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term > s.mu.term {
		s.resetLocked(term)
	}
}

// Forget drops what is known of a node: it has just started.
func (s *Reports) Forget(id keys.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.mu.nodes[id]; n != nil {
		s.unleadLocked(id, n)
		s.breaksLocked(id, n, nil)
		delete(s.mu.nodes, id)
	}
}

func (s *Reports) unleadLocked(id keys.NodeID, n *node) {
	for p := range n.led {
		if s.mu.leaders[p] == id {
			delete(s.mu.leaders, p)
			s.mu.news[p] = struct{}{}
		}
	}
	n.led = map[keys.PartitionID]struct{}{}
}

// Heartbeat takes a heartbeat, and returns whether the node should send everything, and whether it
// brought descriptors that may be newer than the table's. room bounds the partitions; now is the
// monotonic clock.
func (s *Reports) Heartbeat(
	term uint64, h *clusterpb.HeartbeatRequest, room int, now int64,
) (wantFull, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case term < s.mu.term:
		return true, false
	case term > s.mu.term:
		s.resetLocked(term)
	}
	id := keys.NodeID(h.Node)
	n := s.mu.nodes[id]
	if n == nil {
		n = &node{led: map[keys.PartitionID]struct{}{}}
		s.mu.nodes[id] = n
	}
	if h.Stats != nil {
		trimStats(h.Stats)
		n.stats, n.ahead = h.Stats, consumer.Ahead(h.Stats.ClockUnixNanos, now)
		n.statsAt = now
		s.breaksLocked(id, n, h.Stats.Broken)
	}
	if h.Full {
		s.unleadLocked(id, n)
		n.complete = true
	}
	for _, r := range h.Reports {
		if len(r.GetWaitsFor()) > meta.MaxTextBytes {
			r.WaitsFor = strings.ToValidUTF8(r.WaitsFor[:meta.MaxTextBytes], "")
		}
		pieces := r.SplitOff[:min(len(r.SplitOff), maxPieces)]
		r.SplitOff = nil
		trimHints(r.GetSplit())
		s.reportLocked(id, n, r, room)
		if d := r.Described; d != nil && s.mu.leaders[keys.PartitionID(r.Partition)] == id &&
			d.Id == r.Partition && d.Membership == r.Membership && d.Generation == r.Generation &&
			s.mu.tabled[keys.PartitionID(d.Id)] != epochOf(d) {
			s.claimLocked(d, pieces)
			s.mu.news[keys.PartitionID(d.Id)] = struct{}{}
			news = true
		}
	}
	return !n.complete, news
}

// reportLocked keeps the report with the highest epoch, and within it that with the highest term.
func (s *Reports) reportLocked(id keys.NodeID, n *node, r *clusterpb.PartitionReport, room int) {
	p := keys.PartitionID(r.GetPartition())
	old := s.mu.partitions[p]
	if old == nil && len(s.mu.partitions) >= room {
		return
	}
	if r.Lost {
		delete(n.led, p)
		if s.mu.leaders[p] == id && (old == nil || r.Term >= old.Term) {
			s.mu.news[p] = struct{}{}
			delete(s.mu.leaders, p)
		}
		return
	}
	if old != nil {
		switch c := cmp.Or(cmp.Compare(r.Generation, old.Generation),
			cmp.Compare(r.Membership, old.Membership), cmp.Compare(r.Term, old.Term)); {
		case c < 0:
			return
		case c == 0 && s.mu.leaders[p] != id && s.mu.leaders[p] != 0:
			return // one leader for each term
		}
	}
	if before := s.mu.nodes[s.mu.leaders[p]]; before != nil {
		delete(before.led, p)
	}
	changed := old == nil || s.mu.leaders[p] != id || r.Generation != old.Generation ||
		r.Membership != old.Membership
	s.mu.news[p] = struct{}{}
	s.mu.partitions[p] = r
	s.mu.leaders[p] = id
	n.led[p] = struct{}{}
	if changed {
		s.wakeMergesLocked(p, id)
	}
}

// Drop forgets partitions that are gone.
func (s *Reports) Drop(ids []keys.PartitionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range ids {
		if n := s.mu.nodes[s.mu.leaders[p]]; n != nil {
			delete(n.led, p)
		}
		delete(s.mu.leaders, p)
		delete(s.mu.partitions, p)
		delete(s.mu.described, p)
		delete(s.mu.tabled, p)
		delete(s.mu.operators, p)
		delete(s.mu.broken, p)
		delete(s.mu.news, p)
	}
}

func (s *Reports) Stats(id keys.NodeID) *clusterpb.NodeStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.mu.nodes[id]; n != nil {
		return n.stats
	}
	return nil
}

// Describe fills in what is known of a partition.
func (s *Reports) Describe(info *clusterpb.PartitionInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := keys.PartitionID(info.Partition.Id)
	info.LeaderNode = uint64(s.mu.leaders[p])
	if r := s.mu.partitions[p]; r != nil {
		info.Term, info.LiveKeys, info.SizeBytes = r.Term, r.LiveKeys, r.SizeBytes
		info.LiveBytes, info.MeasuredSeconds = r.LiveBytes, r.MeasuredSeconds
		info.Minute, info.FiveMinutes = r.Minute, r.FiveMinutes
	}
}

// Kept returns of how many partitions a report is kept, of how many the leader is known, and of how
// many it is remembered that the table has what was reported.
func (s *Reports) Kept() (reports, leaders, tabled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.partitions), len(s.mu.leaders), len(s.mu.tabled)
}

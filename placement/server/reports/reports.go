package reports

import (
	"sync"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Reports has the state that the core's leader knows from heartbeats and does not store.
type Reports struct {
	mu struct {
		sync.Mutex
		// term is the term of the leadership that the state belongs to.
		term       uint64
		nodes      map[keys.NodeID]*node
		partitions map[keys.PartitionID]*clusterpb.PartitionReport
		leaders    map[keys.PartitionID]keys.NodeID
		// tabled has the epochs of reported descriptors that are in the table.
		tabled map[keys.PartitionID]epoch
		// described has the newest reported descriptors that are not known to be in the table. operators
		// has the operators that are under way, as the stepper has last read them.
		described map[keys.PartitionID]*Claim
		operators map[keys.PartitionID]*serverpb.Operator
		// broken has the nodes whose replica of a partition is broken. news has the partitions with
		// reports that the planner has not seen.
		broken map[keys.PartitionID]map[keys.NodeID]bool
		news   map[keys.PartitionID]struct{}
		// started has the times at which nodes have registered, by the monotonic clock. Nodes register
		// when they start.
		started map[keys.NodeID]int64
		// wake has the nodes that must be notified of orders. waking has the nodes that are being
		// notified.
		wake, waking map[keys.NodeID]struct{}
	}
	// woken is signalled when there are nodes to notify. Capacity 1.
	woken chan struct{}
}

// epoch is the epoch of a descriptor.
type epoch struct{ generation, membership uint64 }

func epochOf(d *clusterpb.Partition) epoch { return epoch{d.Generation, d.Membership} }

type node struct {
	stats *clusterpb.NodeStats
	// statsAt is the time at which stats arrived, by the monotonic clock.
	statsAt int64
	// complete is set if the node has sent all its reports since this leadership began.
	complete bool
	led      map[keys.PartitionID]struct{}
	// broken are the partitions whose replica on the node is broken.
	broken []uint64
	// ahead is the least amount by which the node's clock is ahead of this process's monotonic clock.
	// It is nil if the node does not trust its clock, or has not reported it.
	ahead *int64
}

// New makes the Reports of a member that has never led.
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

// BeginTerm drops all reports from before the leadership of a term, unless the first heartbeat of
// the term has done so.
func (s *Reports) BeginTerm(term uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term > s.mu.term {
		s.resetLocked(term)
	}
}

// Drop removes partitions that are gone.
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

// Describe fills in the reported state of a partition.
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

// Kept returns three numbers of partitions: with a report, with a known leader, and with a
// remembered epoch in the table.
func (s *Reports) Kept() (reports, leaders, tabled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.partitions), len(s.mu.leaders), len(s.mu.tabled)
}

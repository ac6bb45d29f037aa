package reports

import (
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// BeginOperator takes note of an operator that was recorded or changed.
func (s *Reports) BeginOperator(o *serverpb.Operator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.operators[keys.PartitionID(o.Partition)] = o
	s.wakeForLocked(o, 0)
}

// EndOperator forgets a partition's operator.
func (s *Reports) EndOperator(id keys.PartitionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.operators, id)
}

// SetOperators takes what the store says.
func (s *Reports) SetOperators(all map[keys.PartitionID]*serverpb.Operator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.operators = maps.Clone(all)
}

// OperatorsOf returns those of partitions that a node leads, and merges of two of which it leads
// one.
func (s *Reports) OperatorsOf(node keys.NodeID) []*serverpb.Operator {
	s.mu.Lock()
	defer s.mu.Unlock()
	var led []*serverpb.Operator
	for id, o := range s.mu.operators {
		if s.mu.leaders[id] == node ||
			steps.Merges(o) && s.mu.leaders[keys.PartitionID(o.Right)] == node {
			led = append(led, o)
		}
	}
	slices.SortFunc(led, func(a, b *serverpb.Operator) int { return int(a.Id) - int(b.Id) })
	return led
}

// Operators are those that are under way, by partition.
func (s *Reports) Operators() map[keys.PartitionID]*serverpb.Operator {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.operators)
}

// Membership is the highest membership that the leader of a partition has reported.
func (s *Reports) Membership(id keys.PartitionID) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.partitions[id].GetMembership()
}

// Failures returns how often the present step of an operator has failed at the leader of a
// partition, and left the partition's descriptor unchanged.
func (s *Reports) Failures(id keys.PartitionID, operator uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.mu.partitions[id]; r.GetOperator() == operator {
		return uint64(r.GetFailures())
	}
	return 0
}

// Progress is the node that leads a partition, and what its order waits for, in words.
func (s *Reports) Progress(id keys.PartitionID) (leader keys.NodeID, waitsFor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.leaders[id], s.mu.partitions[id].GetWaitsFor()
}

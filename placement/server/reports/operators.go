package reports

import (
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// BeginOperator stores an operator that was recorded or changed.
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

// SetOperators replaces all operators by those of the store.
func (s *Reports) SetOperators(all map[keys.PartitionID]*serverpb.Operator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.operators = maps.Clone(all)
}

// OperatorsOf returns the operators of partitions that a node leads, and the merges of two
// partitions of which the node leads one.
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

// Operators returns the operators that are under way, by partition.
func (s *Reports) Operators() map[keys.PartitionID]*serverpb.Operator {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.operators)
}

// Membership returns the highest membership that the leader of a partition has reported.
func (s *Reports) Membership(id keys.PartitionID) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.partitions[id].GetMembership()
}

// Failures returns how often the current step of an operator has failed at the leader of a
// partition, with the partition's descriptor unchanged.
func (s *Reports) Failures(id keys.PartitionID, operator uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.mu.partitions[id]; r.GetOperator() == operator {
		return uint64(r.GetFailures())
	}
	return 0
}

// Progress returns the node that leads a partition, and what its order waits for, in words.
func (s *Reports) Progress(id keys.PartitionID) (leader keys.NodeID, waitsFor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.leaders[id], s.mu.partitions[id].GetWaitsFor()
}

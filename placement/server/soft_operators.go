package server

import (
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// begin takes note of an operator that was recorded or changed.
func (s *soft) begin(o *serverpb.Operator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.operators[keys.PartitionID(o.Partition)] = o
	s.wakeForLocked(o, 0)
}

// end forgets a partition's operator.
func (s *soft) end(id keys.PartitionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.operators, id)
}

// setOperators takes what the store says.
func (s *soft) setOperators(all map[keys.PartitionID]*serverpb.Operator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.operators = maps.Clone(all)
}

// operatorsOf are those of partitions that a node leads, with merges of two of which it leads one.
func (s *soft) operatorsOf(node keys.NodeID) []*serverpb.Operator {
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

// operators are those that are under way, by partition.
func (s *soft) operators() map[keys.PartitionID]*serverpb.Operator {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.operators)
}

// membership is the highest membership that the leader of a partition has reported.
func (s *soft) membership(id keys.PartitionID) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.partitions[id].GetMembership()
}

// failures is how often the present step of an operator has failed at the leader of a partition, and
// left the partition's descriptor as it was.
func (s *soft) failures(id keys.PartitionID, operator uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.mu.partitions[id]; r.GetOperator() == operator {
		return uint64(r.GetFailures())
	}
	return 0
}

// progress is the node that leads a partition, and what its order waits for, in words.
func (s *soft) progress(id keys.PartitionID) (leader keys.NodeID, waitsFor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.leaders[id], s.mu.partitions[id].GetWaitsFor()
}

package reports

import (
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Partition has the nodes' reports about a partition.
type Partition struct {
	Leader keys.NodeID
	// Report is the leader's report, or nil if there is none. It must not be changed.
	Report *clusterpb.PartitionReport
	// Broken are the nodes whose replica of the partition is broken.
	Broken map[keys.NodeID]bool
}

// Of returns the nodes' reports about a partition.
func (s *Reports) Of(id keys.PartitionID) Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Partition{s.mu.leaders[id], s.mu.partitions[id], maps.Clone(s.mu.broken[id])}
}

// TakeNews returns the partitions with new reports since the last call, in order, and the latest
// figures of the nodes.
func (s *Reports) TakeNews() ([]keys.PartitionID, map[keys.NodeID]*clusterpb.NodeStats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := slices.Sorted(maps.Keys(s.mu.news))
	clear(s.mu.news)
	stats := make(map[keys.NodeID]*clusterpb.NodeStats, len(s.mu.nodes))
	for id, n := range s.mu.nodes {
		if n.stats != nil {
			stats[id] = n.stats
		}
	}
	return news, stats
}

// Complete reports whether a node has sent all its reports since this leadership began.
func (s *Reports) Complete(id keys.NodeID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.mu.nodes[id]
	return n != nil && n.complete
}

// Ahead reports whether the reported epoch of a partition is later than that of its newest
// descriptor.
func (s *Reports) Ahead(d *clusterpb.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.mu.partitions[keys.PartitionID(d.Id)]
	return r != nil && Newer(&clusterpb.Partition{Generation: r.Generation, Membership: r.Membership},
		d)
}

// Distrust drops the reports of a partition, and asks the nodes of its replicas to report all
// partitions that they lead.
func (s *Reports) Distrust(d *clusterpb.Partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := keys.PartitionID(d.Id)
	if n := s.mu.nodes[s.mu.leaders[id]]; n != nil {
		delete(n.led, id)
	}
	delete(s.mu.leaders, id)
	delete(s.mu.partitions, id)
	delete(s.mu.described, id)
	s.mu.news[id] = struct{}{}
	s.askLocked(d)
}

// breaksLocked records which replicas of a node are broken.
func (s *Reports) breaksLocked(id keys.NodeID, n *node, broken []uint64) {
	if slices.Equal(n.broken, broken) {
		return
	}
	for _, p := range n.broken {
		p := keys.PartitionID(p)
		delete(s.mu.broken[p], id)
		if len(s.mu.broken[p]) == 0 {
			delete(s.mu.broken, p)
		}
		s.mu.news[p] = struct{}{}
	}
	n.broken = broken[:min(len(broken), maxBrokenReports)]
	for _, p := range n.broken {
		p := keys.PartitionID(p)
		if s.mu.broken[p] == nil {
			s.mu.broken[p] = map[keys.NodeID]bool{}
		}
		s.mu.broken[p][id] = true
		s.mu.news[p] = struct{}{}
	}
}

// maxBrokenReports limits the broken replicas that are remembered for a node.
const maxBrokenReports = 10_000

// Newer reports whether a's epoch is higher than b's.
func Newer(a, b *clusterpb.Partition) bool {
	if a.Generation != b.Generation {
		return a.Generation > b.Generation
	}
	return a.Membership > b.Membership
}

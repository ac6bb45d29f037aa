package planner

import (
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Holds returns how many descriptors name a node.
func (s *State) Holds(id keys.NodeID) int {
	i := s.indexOf(id)
	if i == noNode {
		return 0
	}
	return len(s.nodes[i].list)
}

// HeldBytes returns the bytes of the replicas of which descriptors name a node.
func (s *State) HeldBytes(id keys.NodeID) (bytes int64) {
	i := s.indexOf(id)
	if i == noNode {
		return 0
	}
	for _, p := range s.nodes[i].list {
		bytes += s.partitions[p].bytes
	}
	return bytes
}

// Leads returns how many partitions a node leads.
func (s *State) Leads(id keys.NodeID) (n int) {
	i := s.indexOf(id)
	if i == noNode {
		return 0
	}
	for _, p := range s.nodes[i].list {
		if s.partitions[p].leader == i {
			n++
		}
	}
	return n
}

// CanDrain says what a node that is drained would go on leading, because no other replica can.
func (s *State) CanDrain(id keys.NodeID) []Obstacle {
	i := s.indexOf(id)
	if i == noNode || !s.nodes[i].known {
		return []Obstacle{{Nodes: []keys.NodeID{id}, Text: fmt.Sprintf("there is no node %s", id)}}
	}
	var alone []keys.PartitionID
	for _, at := range s.nodes[i].list {
		p := &s.partitions[at]
		others := slices.ContainsFunc(s.replicas(p), func(r replica) bool {
			return r.node != i && r.role == Voter && s.answers(r) && !s.nodes[r.node].cond.is(drained)
		})
		if !others && p.leader == i {
			alone = append(alone, p.id)
		}
	}
	if alone == nil {
		return nil
	}
	slices.Sort(alone)
	return []Obstacle{{Partitions: alone[:min(len(alone), maxNamed)], Text: fmt.Sprintf(
		"%s have no other replica that can lead, %s first: the node goes on leading them",
		plural(len(alone), "partition"), alone[0])}}
}

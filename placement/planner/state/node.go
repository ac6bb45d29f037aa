package state

import (
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Fullness returns which part of a node's disk is used if more bytes come to it; 0 if the capacity
// of the disk is not known.
func (s *State) Fullness(n uint16, more int64) float64 {
	node := &s.Nodes[n]
	if node.Told.DiskCapacity <= 0 {
		return 0
	}
	return float64(node.OtherBytes+node.Sum[planner.ByBytes]+more) / float64(node.Told.DiskCapacity)
}

// SetNode adds a node or changes what is known of it. The figures of the node count from the next
// step on. The partitions on the node are listed as changed only if its zone, its labels or what it
// says of leadership changed; Advance lists them when the condition of the node changes. SetNode
// refuses a node without an id, negative figures, and more than 65,534 nodes.
func (s *State) SetNode(n planner.Node) error {
	if err := n.Validate(); err != nil {
		return err
	}
	i, err := s.nodeAt(n.ID)
	if err != nil {
		return err
	}
	node := &s.Nodes[i]
	before := node.Told
	n.Tags = slices.Clone(n.Tags)
	node.Told = n
	node.reported = true
	changed := before.Region != n.Region || before.Zone != n.Zone
	if changed || !node.Known {
		s.locate(node)
	}
	node.Known = true
	for k := range s.Keyspaces {
		changed = s.Keyspaces[k].match(s.Nodes, int(i)) || changed
	}
	if changed || before.AvoidsLeading() != n.AvoidsLeading() {
		for _, p := range node.Partitions {
			s.touch(p)
		}
		s.changes.Nodes = true
	}
	return nil
}

// RemoveNode forgets a node. It fails while a descriptor names the node.
func (s *State) RemoveNode(id keys.NodeID) error {
	i, ok := s.nodeIndex[id]
	if !ok {
		return nil
	}
	n := &s.Nodes[i]
	if len(n.Partitions) > 0 {
		return fmt.Errorf("node %s still has %d replicas", id, len(n.Partitions))
	}
	s.countOpen(n, -1)
	n.Known, n.Condition, n.Told = false, 0, planner.Node{ID: id}
	s.changes.Nodes = true
	return nil
}

// nodeAt returns the index of a node, and adds a node that is not known.
func (s *State) nodeAt(id keys.NodeID) (uint16, error) {
	if i, ok := s.nodeIndex[id]; ok {
		return i, nil
	}
	if len(s.Nodes) >= int(NoNode) {
		return 0, fmt.Errorf("more than %d nodes", len(s.Nodes))
	}
	i := uint16(len(s.Nodes))
	s.nodeIndex[id] = i
	s.Nodes = append(s.Nodes, Node{Told: planner.Node{ID: id}})
	s.locate(&s.Nodes[i])
	for k := range s.Keyspaces {
		s.Keyspaces[k].match(s.Nodes, int(i))
	}
	return i, nil
}

// judge brings the conditions of all nodes up to the present time. The partitions on a node whose
// condition changed are listed as changed. When more zones or regions are open than before, every
// partition is: each could be spread better.
func (s *State) judge() {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !n.Known {
			continue
		}
		c := conditionOf(&n.Told, s.now, &s.settings)
		if c == n.Condition {
			continue
		}
		s.countOpen(n, -1)
		n.Condition = c
		s.countOpen(n, 1)
		for _, p := range n.Partitions {
			s.touch(p)
		}
		s.changes.Nodes = true
	}
	zones, regions := s.open()
	if zones > s.OpenZones || regions > s.OpenRegions {
		s.TouchAll()
	} else if zones < s.OpenZones || regions < s.OpenRegions {
		s.changes.FewerPlaces = true
	}
	s.OpenZones, s.OpenRegions = zones, regions
}

// weigh computes, for each node that has reported since the last step, how many bytes its disk
// holds beside the replicas. Bytes that are in flight to the node are not on its disk yet; bytes
// that are in flight from the node still are.
func (s *State) weigh() {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.reported {
			n.OtherBytes = max(0, n.Told.DiskUsed-(n.Sum[planner.ByBytes]-n.Pending))
			n.reported = false
		}
	}
}

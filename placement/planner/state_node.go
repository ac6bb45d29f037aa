package planner

import (
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// SetNode adds a node or changes what is known of it. Its figures decide where replicas go from the
// next step on; its partitions are looked at again only if its place or labels changed, or, in
// Step, what may be done with it. It refuses a node without an id, negative figures, and more than
// 65,534 nodes.
func (s *State) SetNode(n Node) error {
	if err := n.validate(); err != nil {
		return err
	}
	i, err := s.nodeAt(n.ID)
	if err != nil {
		return err
	}
	node := &s.nodes[i]
	before := node.info
	n.Tags = slices.Clone(n.Tags)
	node.info = n
	node.reported = true
	moved := before.Region != n.Region || before.Zone != n.Zone
	if moved || !node.known {
		s.settleDown(i)
	}
	node.known = true
	for k := range s.keyspaces {
		moved = s.maskOne(&s.keyspaces[k], int(i)) || moved
	}
	if moved || before.averse() != n.averse() {
		for _, p := range node.list {
			s.touch(p)
		}
		s.changes.Nodes = true
	}
	return nil
}

// RemoveNode forgets a node. It refuses while a descriptor names it.
func (s *State) RemoveNode(id keys.NodeID) error {
	i, ok := s.nodeIndex[id]
	if !ok {
		return nil
	}
	n := &s.nodes[i]
	if len(n.list) > 0 {
		return fmt.Errorf("node %s still has %d replicas", id, len(n.list))
	}
	if n.cond.is(open) {
		s.zones[n.zone].open--
		s.regions[n.region].open--
	}
	n.known, n.cond, n.info = false, 0, Node{ID: id}
	s.changes.Nodes = true
	return nil
}

func (s *State) nodeAt(id keys.NodeID) (uint16, error) {
	if i, ok := s.nodeIndex[id]; ok {
		return i, nil
	}
	if len(s.nodes) >= int(noNode) {
		return 0, fmt.Errorf("more than %d nodes", len(s.nodes))
	}
	i := uint16(len(s.nodes))
	s.nodeIndex[id] = i
	s.nodes = append(s.nodes, nodeState{info: Node{ID: id}})
	s.settleDown(i)
	for k := range s.keyspaces {
		s.maskOne(&s.keyspaces[k], int(i))
	}
	return i, nil
}

// settleDown puts a node into its zone and region. What is in flight there goes with it.
func (s *State) settleDown(i uint16) {
	n := &s.nodes[i]
	if n.known {
		s.countLocations(n, -1)
	}
	key := [2]string{n.info.Region, n.info.Zone}
	zone, ok := s.zoneIndex[key]
	if !ok {
		zone = uint16(len(s.zones))
		s.zoneIndex[key] = zone
		s.zones = append(s.zones, location{region: n.info.Region, name: n.info.Zone})
	}
	region, ok := s.regionAt[n.info.Region]
	if !ok {
		region = uint16(len(s.regions))
		s.regionAt[n.info.Region] = region
		s.regions = append(s.regions, location{region: n.info.Region})
	}
	n.zone, n.region = zone, region
	s.countLocations(n, 1)
}

func (s *State) countLocations(n *nodeState, sign int) {
	for _, d := range []*location{&s.zones[n.zone], &s.regions[n.region]} {
		if n.cond.is(open) {
			d.open += sign
		}
		d.receiving += sign * n.receiving
		d.sending += sign * n.sending
	}
}

// judge brings the conditions of all nodes up to the time of a step. Where one changed, its
// partitions are looked at again, and what had no place too. A zone that is open for the first time
// makes better spread possible for every partition.
func (s *State) judge() {
	changed := false
	for i := range s.nodes {
		n := &s.nodes[i]
		if !n.known {
			continue
		}
		c := conditionOf(&n.info, s.now, &s.settings)
		if c == n.cond {
			continue
		}
		s.countOpen(n, -1)
		n.cond = c
		s.countOpen(n, 1)
		for _, p := range n.list {
			s.touch(p)
		}
		changed = true
	}
	if changed {
		s.changes.Nodes = true
	}
	zones, regions := s.openLocations()
	if zones > s.openZones || regions > s.openRegions {
		s.touchAll()
	} else if zones < s.openZones || regions < s.openRegions {
		s.changes.FewerPlaces = true
	}
	s.openZones, s.openRegions = zones, regions
}

// weigh takes over what the nodes have reported of their disks: what is used there and is not in
// the sums. What is in flight is not on the disk yet, or still is.
func (s *State) weigh() {
	for i := range s.nodes {
		if n := &s.nodes[i]; n.reported {
			n.other = max(0, n.info.DiskUsed-(n.sum[byBytes]-n.pending))
			n.reported = false
		}
	}
}

func (s *State) countOpen(n *nodeState, sign int) {
	if n.cond.is(open) {
		s.zones[n.zone].open += sign
		s.regions[n.region].open += sign
	}
}

func (s *State) openLocations() (zones, regions int) {
	for i := range s.zones {
		if s.zones[i].open > 0 {
			zones++
		}
	}
	for i := range s.regions {
		if s.regions[i].open > 0 {
			regions++
		}
	}
	return zones, regions
}

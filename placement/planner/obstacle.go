package planner

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Obstacle is something that stands in the way of the removal of nodes.
type Obstacle struct {
	// Nodes, Keyspace and Partitions are what it is about; those that do not matter are empty. Of
	// many partitions, 16 are named.
	Nodes      []keys.NodeID      `json:",omitempty"`
	Keyspace   keys.KeyspaceID    `json:",omitempty"`
	Partitions []keys.PartitionID `json:",omitempty"`
	// Text says it in words.
	Text string
}

func (o Obstacle) String() string { return o.Text }

// CanRemove says what stands in the way of decommissioning nodes, all together; nothing if they
// can be. It changes nothing. What it takes for granted is that the nodes that answer go on doing
// so.
func (s *State) CanRemove(ids ...keys.NodeID) []Obstacle {
	var out []Obstacle
	goes := make([]bool, len(s.nodes))
	for _, id := range ids {
		i := s.indexOf(id)
		if i == noNode || !s.nodes[i].known {
			out = append(out, Obstacle{Nodes: []keys.NodeID{id},
				Text: fmt.Sprintf("there is no node %s", id)})
			continue
		}
		goes[i] = true
	}
	var left []uint16
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.known && n.info.Alive && n.info.Status == Active && !goes[i] {
			left = append(left, uint16(i))
		}
	}
	for _, k := range s.keyspacesByID() {
		out = append(out, s.lacking(&s.keyspaces[k], left, "would be left")...)
	}
	out = append(out, s.lackingRoom(goes, left)...)
	return append(out, s.immovable(goes)...)
}

func (s *State) keyspacesByID() []uint16 {
	var out []uint16
	for i := range s.keyspaces {
		if s.keyspaces[i].known {
			out = append(out, uint16(i))
		}
	}
	slices.SortFunc(out, func(a, b uint16) int {
		return cmp.Compare(s.keyspaces[a].info.ID, s.keyspaces[b].info.ID)
	})
	return out
}

// lacking says what a keyspace wants that the nodes that are left cannot give; are is what the
// words say of these nodes.
func (s *State) lacking(ks *keyspaceState, left []uint16, are string) []Obstacle {
	k := &ks.info
	var allowed []uint16
	for _, n := range left {
		if len(ks.masks) == 0 || k.Rules.allows(ks.masks[n]) {
			allowed = append(allowed, n)
		}
	}
	if len(allowed) < k.Replicas {
		return []Obstacle{{Keyspace: k.ID, Text: fmt.Sprintf(
			"keyspace %s wants %s, %s %s%s", k.Name, plural(k.Replicas, "replica"),
			plural(len(allowed), "node"), are, whereAllowed(k.Rules))}}
	}
	if len(ks.masks) == 0 {
		return nil
	}
	masks := make([]ruleMask, len(allowed))
	for i, n := range allowed {
		masks[i] = ks.masks[n]
	}
	names, wanted, has := k.Rules.shortage(masks)
	if wanted == 0 {
		return nil
	}
	return []Obstacle{{Keyspace: k.ID, Text: fmt.Sprintf(
		"keyspace %s wants %s on nodes that match %s, %s %s", k.Name,
		plural(wanted, "replica"), names, plural(has, "node"), are)}}
}

func whereAllowed(rules Rules) string {
	var all Rules
	for _, r := range rules {
		if r.Count == 0 {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf(" that the placement %q allows", all)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// lackingRoom compares what has to move with the room that is left.
func (s *State) lackingRoom(goes []bool, left []uint16) []Obstacle {
	var bytes, room int64
	for i := range s.nodes {
		// What is on its way out of other nodes needs that room as well.
		if n := &s.nodes[i]; goes[i] || n.known && n.info.Status == Moving {
			bytes += n.sum[byBytes]
		}
	}
	for _, n := range left {
		node := &s.nodes[n]
		if node.info.DiskCapacity == 0 {
			return nil
		}
		used := node.other + node.sum[byBytes]
		room += max(0, int64(s.settings.DiskHigh*float64(node.info.DiskCapacity))-used)
	}
	if bytes <= room {
		return nil
	}
	return []Obstacle{{Text: fmt.Sprintf("%s have to move, the other disks have room for %s",
		size(bytes), size(room))}}
}

func size(bytes int64) string {
	if bytes < 10<<30 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d GiB", bytes>>30)
}

// immovable finds the partitions on the nodes that too few voters answer of.
func (s *State) immovable(goes []bool) []Obstacle {
	var found []keys.PartitionID
	seen := map[uint32]bool{}
	for i := range s.nodes {
		if !goes[i] {
			continue
		}
		for _, p := range s.nodes[i].list {
			if !seen[p] && s.keyspaces[s.partitions[p].keyspace].known {
				seen[p] = true
				if x := s.inspect(&s.partitions[p]); !x.quorum {
					found = append(found, s.partitions[p].id)
				}
			}
		}
	}
	if found == nil {
		return nil
	}
	slices.Sort(found)
	text := fmt.Sprintf("%s of which too few voters answer cannot be moved, %s first",
		plural(len(found), "partition"), found[0])
	return []Obstacle{{Partitions: found[:min(len(found), maxNamed)], Text: text}}
}

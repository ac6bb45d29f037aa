package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Obstacle is something that stands in the way of removing or draining nodes.
type Obstacle struct {
	// Nodes, Keyspace and Partitions are what the obstacle is about; the others are empty. Of many
	// partitions, planner.MaxNamed are named.
	Nodes      []keys.NodeID      `json:",omitempty"`
	Keyspace   keys.KeyspaceID    `json:",omitempty"`
	Partitions []keys.PartitionID `json:",omitempty"`
	// Text says in words what the obstacle is.
	Text string
}

func (o Obstacle) String() string { return o.Text }

// CanRemove says what stands in the way of decommissioning nodes, all of them together. It is empty
// if nothing does. It takes for granted that the nodes that answer go on answering.
func (e *Explainer) CanRemove(ids ...keys.NodeID) []Obstacle {
	var out []Obstacle
	goes := make([]bool, len(e.state.Nodes))
	for _, id := range ids {
		i := e.state.NodeIndex(id)
		if i == state.NoNode || !e.state.Nodes[i].Known {
			out = append(out, Obstacle{Nodes: []keys.NodeID{id},
				Text: fmt.Sprintf("there is no node %s", id)})
			continue
		}
		goes[i] = true
	}
	var left []uint16
	for i := range e.state.Nodes {
		n := &e.state.Nodes[i]
		if n.Known && n.Told.Alive && n.Told.Status == planner.Active && !goes[i] {
			left = append(left, uint16(i))
		}
	}
	for _, k := range e.keyspacesByID() {
		out = append(out, e.lacking(&e.state.Keyspaces[k], left, "would be left")...)
	}
	out = append(out, e.lackingRoom(goes, left)...)
	return append(out, e.immovable(goes)...)
}

// keyspacesByID returns the indices of the known keyspaces, by their ids.
func (e *Explainer) keyspacesByID() []uint16 {
	var out []uint16
	for i := range e.state.Keyspaces {
		if e.state.Keyspaces[i].Known {
			out = append(out, uint16(i))
		}
	}
	slices.SortFunc(out, func(a, b uint16) int {
		return cmp.Compare(e.state.Keyspaces[a].Wants.ID, e.state.Keyspaces[b].Wants.ID)
	})
	return out
}

// lacking says what a keyspace wants and some nodes cannot give. are is the predicate of the
// sentence about these nodes.
func (e *Explainer) lacking(ks *state.Keyspace, left []uint16, are string) []Obstacle {
	k := &ks.Wants
	var allowed []uint16
	for _, n := range left {
		if len(ks.Masks) == 0 || k.Rules.Allows(ks.Masks[n]) {
			allowed = append(allowed, n)
		}
	}
	if len(allowed) < k.Replicas {
		return []Obstacle{{Keyspace: k.ID, Text: fmt.Sprintf(
			"keyspace %s wants %s, %s %s%s", k.Name, words.Plural(k.Replicas, "replica"),
			words.Plural(len(allowed), "node"), are, k.Rules.AllowedText())}}
	}
	if len(ks.Masks) == 0 {
		return nil
	}
	masks := make([]rules.Mask, len(allowed))
	for i, n := range allowed {
		masks[i] = ks.Masks[n]
	}
	names, wanted, has := k.Rules.Shortage(masks)
	if wanted == 0 {
		return nil
	}
	return []Obstacle{{Keyspace: k.ID, Text: fmt.Sprintf(
		"keyspace %s wants %s on nodes that match %s, %s %s", k.Name,
		words.Plural(wanted, "replica"), names, words.Plural(has, "node"), are)}}
}

// lackingRoom says whether the nodes that are left lack room for the bytes that have to move.
func (e *Explainer) lackingRoom(goes []bool, left []uint16) []Obstacle {
	var bytes, room int64
	for i := range e.state.Nodes {
		// The replicas of nodes that are being decommissioned already need the same room.
		if n := &e.state.Nodes[i]; goes[i] || n.Known && n.Told.Status == planner.Moving {
			bytes += n.Sum[planner.ByBytes]
		}
	}
	for _, n := range left {
		node := &e.state.Nodes[n]
		if node.Told.DiskCapacity == 0 {
			return nil
		}
		used := node.OtherBytes + node.Sum[planner.ByBytes]
		room += max(0, int64(e.state.Settings().DiskHigh*float64(node.Told.DiskCapacity))-used)
	}
	if bytes <= room {
		return nil
	}
	return []Obstacle{{Text: fmt.Sprintf("%s have to move, the other disks have room for %s",
		words.Size(bytes), words.Size(room))}}
}

// immovable names the partitions on the nodes that have no quorum, and so cannot be moved.
func (e *Explainer) immovable(goes []bool) []Obstacle {
	var found []keys.PartitionID
	seen := map[uint32]bool{}
	for i := range e.state.Nodes {
		if !goes[i] {
			continue
		}
		for _, p := range e.state.Nodes[i].Partitions {
			if !seen[p] && e.state.Keyspaces[e.state.Partitions[p].Keyspace].Known {
				seen[p] = true
				if x := e.objective.Inspect(&e.state.Partitions[p]); !x.Quorum {
					found = append(found, e.state.Partitions[p].ID)
				}
			}
		}
	}
	if found == nil {
		return nil
	}
	slices.Sort(found)
	text := fmt.Sprintf("%s of which too few voters answer cannot be moved, %s first",
		words.Plural(len(found), "partition"), found[0])
	return []Obstacle{{Partitions: found[:min(len(found), planner.MaxNamed)], Text: text}}
}

// CanDrain says what keeps a node that is drained from giving up all leaderships: partitions that
// no other replica can lead. It is empty if nothing does.
func (e *Explainer) CanDrain(id keys.NodeID) []Obstacle {
	i := e.state.NodeIndex(id)
	if i == state.NoNode || !e.state.Nodes[i].Known {
		return []Obstacle{{Nodes: []keys.NodeID{id}, Text: fmt.Sprintf("there is no node %s", id)}}
	}
	alone := e.ledAlone(i)
	if alone == nil {
		return nil
	}
	slices.Sort(alone)
	return []Obstacle{{Partitions: alone[:min(len(alone), planner.MaxNamed)], Text: fmt.Sprintf(
		"%s have no other replica that can lead, %s first: the node goes on leading them",
		words.Plural(len(alone), "partition"), alone[0])}}
}

// LeadsAlone counts the partitions led by a node that no other replica can lead.
func (e *Explainer) LeadsAlone(id keys.NodeID) int {
	i := e.state.NodeIndex(id)
	if i == state.NoNode {
		return 0
	}
	return len(e.ledAlone(i))
}

// ledAlone returns the partitions led by a node that no other replica can lead.
func (e *Explainer) ledAlone(i uint16) (alone []keys.PartitionID) {
	for _, at := range e.state.Nodes[i].Partitions {
		p := &e.state.Partitions[at]
		others := slices.ContainsFunc(e.state.Replicas(p), func(r state.Replica) bool {
			return r.Node != i && r.Role == planner.Voter && e.objective.Answers(r) &&
				!e.state.Nodes[r.Node].Condition.Is(state.Drained)
		})
		if !others && p.Leader == i {
			alone = append(alone, p.ID)
		}
	}
	return alone
}

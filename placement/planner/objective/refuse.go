package objective

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
)

// Refuse says why a node cannot be given a replica of a partition. A repair may fill a disk further
// than another move.
func (o *Objective) Refuse(p *state.Partition, n uint16, repair bool) planner.Refusal {
	if o.state.HasReplica(p, n) {
		return planner.HoldsReplica
	}
	node := &o.state.Nodes[n]
	if !node.Condition.Is(state.Open) {
		switch {
		case !node.Condition.Is(state.Live):
			return planner.NotAnswering
		case node.Condition.Is(state.Drained):
			return planner.NodeOut
		}
		return planner.NotSettled
	}
	ks := &o.state.Keyspaces[p.Keyspace]
	if len(ks.Masks) > 0 && !ks.Wants.Rules.Allows(ks.Masks[n]) {
		return planner.RuleForbids
	}
	limit := o.state.Settings().DiskHigh
	if repair {
		limit = o.state.Settings().DiskFull
	}
	if o.state.Fullness(n, p.Bytes) > limit {
		return planner.NoRoom
	}
	return o.Busy(n)
}

// Busy says whether a node or its zone receives as many snapshots as it may: NodeBusy, ZoneBusy or
// Allowed.
func (o *Objective) Busy(n uint16) planner.Refusal {
	node := &o.state.Nodes[n]
	if node.Receiving >= o.state.Settings().NodeInFlight {
		return planner.NodeBusy
	}
	if o.state.Zones[node.Zone].Receiving >= o.state.Settings().ZoneInFlight {
		return planner.ZoneBusy
	}
	return planner.Allowed
}

// SenderBusy says whether a node or its zone sends as many snapshots as it may. It is false for
// NoNode.
func (o *Objective) SenderBusy(n uint16) bool {
	if n == state.NoNode {
		return false
	}
	node := &o.state.Nodes[n]
	return node.Sending >= o.state.Settings().NodeInFlight ||
		o.state.Zones[node.Zone].Sending >= o.state.Settings().ZoneInFlight
}

// RefusalText says in words why a node was refused, to follow the name of the node.
func (o *Objective) RefusalText(p *state.Partition, n uint16, why planner.Refusal) string {
	node := &o.state.Nodes[n]
	switch why {
	case planner.NodeBusy:
		return fmt.Sprintf("already receives %d snapshots", node.Receiving)
	case planner.ZoneBusy:
		return fmt.Sprintf("%s already receives %d snapshots", o.PlaceOf(n),
			o.state.Zones[node.Zone].Receiving)
	case planner.NoRoom:
		return fmt.Sprintf("its disk would be %.0f %% full", 100*o.state.Fullness(n, p.Bytes))
	case planner.RuleForbids:
		return fmt.Sprintf("the placement %q forbids it", o.state.Keyspaces[p.Keyspace].Wants.Rules)
	case planner.NotSettled:
		return fmt.Sprintf("has answered for %s only",
			o.state.Now().Sub(node.Told.Since).Round(time.Second))
	case planner.NodeOut:
		return "is " + node.Told.Status.String()
	case planner.NotAnswering:
		return "does not answer"
	case planner.HoldsReplica:
		return "holds a replica already"
	case planner.Allowed:
	}
	return "can"
}

// PlaceOf names the zone of a node.
func (o *Objective) PlaceOf(n uint16) string {
	z := &o.state.Zones[o.state.Nodes[n].Zone]
	return words.Place(z.Region, z.Name)
}

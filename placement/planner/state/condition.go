package state

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
)

// Condition says what may be done with a node at the time of a step. It is a set of bits.
type Condition uint8

const (
	// Live nodes answer.
	Live Condition = 1 << iota
	// Lost nodes have been silent for longer than the repair delay, or are GONE.
	Lost
	// Leaving nodes are being decommissioned: their replicas go elsewhere.
	Leaving
	// Drained nodes must not lead.
	Drained
	// Open nodes may be given replicas and leaderships.
	Open
)

// Is says whether all bits of another condition are set.
func (c Condition) Is(all Condition) bool { return c&all == all }

// conditionOf is a function of the node, the time and the settings only.
func conditionOf(n *planner.Node, now time.Time, s *planner.Settings) Condition {
	var c Condition
	switch n.Status {
	case planner.Gone:
		return Lost | Leaving | Drained
	case planner.Moving:
		c |= Leaving | Drained
	case planner.Draining:
		c |= Drained
	case planner.Active:
	}
	since := now.Sub(n.Since)
	switch {
	case n.Alive:
		if c |= Live; c == Live && since >= s.Settle {
			c |= Open
		}
	case since >= s.RepairDelay, n.Displaced && since >= s.DisplacedDelay:
		c |= Lost
	}
	return c
}

package propose

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Outcome is what an attempt to act on a finding ended with.
type Outcome uint8

const (
	// Proposed: there is an operator, which counts as in flight.
	Proposed Outcome = iota
	// Waits: the attempt is repeated when the finding has its next turn.
	Waits
	// Stuck: nothing can be done until a node or the keyspace changes.
	Stuck
)

// change is an operator in the making.
type change struct {
	partition uint32
	kind      planner.Kind
	// add, remove and lead are the nodes of the operator, NoNode where it changes nothing.
	add, remove, lead uint16
	// ready: the learner is on its node already.
	ready  bool
	reason planner.Reason
	// found is the outcome of the search for the place of a new replica, if there was one.
	found places
	// key is the key of a split, right the neighbour of a merge.
	key   planner.Key
	right keys.PartitionID
	// resizes: the change is a split or a merge.
	resizes bool
	// growth holds the value of LevelGrowth before and after.
	growth [2]float64
	// rejected is the alternative that was not chosen, if it is not among the places found.
	rejected *planner.Alternative
}

func newChange(i uint32, kind planner.Kind) change {
	return change{partition: i, kind: kind, add: state.NoNode, remove: state.NoNode,
		lead: state.NoNode}
}

package propose

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
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

// attempt makes an operator that mends a finding, and counts it as in flight.
func (pr *Proposer) attempt(f objective.Finding) (planner.Operator, Outcome) {
	switch f.Urgency {
	case objective.UrgencyFinish:
		return pr.finish(f)
	case objective.UrgencyQuorum, objective.UrgencyRepair, objective.UrgencyAdd:
		return pr.repair(f)
	case objective.UrgencyRemove:
		return pr.shrink(f)
	case objective.UrgencySplit:
		return pr.split(f)
	case objective.UrgencyMerge:
		return pr.merge(f)
	case objective.UrgencyDrain, objective.UrgencyLeader:
		if f.Cause == planner.NewTail {
			return pr.placeTail(f)
		}
		return pr.correctLeader(f)
	case objective.UrgencyLeave, objective.UrgencySpread:
		return pr.replaceOne(f)
	case objective.UrgencyRule:
		op, o := pr.replaceOne(f)
		p := &pr.state.Partitions[f.Partition]
		if x := pr.objective.Inspect(p); o == Stuck && pr.objective.FindSpread(&x, &f) {
			// A partition that cannot satisfy the rules can still be spread.
			return pr.replaceOne(f)
		}
		return op, o
	}
	return planner.Operator{}, Stuck
}

// Try says what attempt would make of a finding, and counts nothing as in flight.
func (pr *Proposer) Try(f objective.Finding) (planner.Operator, Outcome) {
	clear(pr.full)
	op, o := pr.attempt(f)
	if o == Proposed {
		pr.state.Withdraw()
	}
	return op, o
}

package propose

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
)

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

package propose

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// Step proposes what to do now. inFlight lists every operator that the core has begun and that has
// not ended. An operator must be listed until SetPartition has been told of the descriptor, or the
// time in Ended, that ended it. Operators that an earlier step proposed and the core has not begun
// are forgotten.
//
// The same State, time and operators in flight give the same proposal.
func (pr *Proposer) Step(now time.Time, inFlight []planner.InFlight) planner.Proposal {
	pr.searches, pr.visits, pr.scans, pr.probes = 0, 0, 0, 0
	clear(pr.full)
	pr.state.Advance(now, inFlight)
	pr.look()
	pr.objective.Measure()
	out := planner.Proposal{}
	for u := range objective.UrgencyBlocked {
		if !pr.state.Settings().Paused {
			first, then := pr.waiting.turns(u, pr.maxVisits())
			out.Operators = pr.serve(u, then, pr.serve(u, first, out.Operators))
		}
	}
	if !pr.state.Settings().Paused {
		out.Operators = pr.balance(out.Operators)
	}
	for _, f := range pr.state.InFlight() {
		// Balance may have moved a partition that waited for something else.
		pr.waiting.put(f.Partition, objective.UrgencyNone)
	}
	out.Blocked, out.FirstBlocked = pr.blocked()
	out.Waiting = pr.waiting.total()
	return out
}

// sends says whether findings of an urgency need a snapshot, as a rule.
func sends(u objective.Urgency) bool {
	switch u {
	case objective.UrgencyQuorum, objective.UrgencyRepair, objective.UrgencyAdd,
		objective.UrgencyLeave, objective.UrgencyRule, objective.UrgencySpread:
		return true
	}
	return false
}

// serve attempts the findings of one urgency, in the order of the queue, until a limit is reached.
func (pr *Proposer) serve(
	u objective.Urgency, queue []uint32, out []planner.Operator,
) []planner.Operator {
	free := !sends(u) || pr.anyFree()
	for _, i := range queue {
		if !free || pr.state.Working >= pr.state.Settings().MaxOperators ||
			pr.searches >= pr.state.Settings().Searches || pr.visits >= pr.maxVisits() {
			break
		}
		pr.visits++
		if p := &pr.state.Partitions[i]; p.ID == 0 || pr.waiting.urgency[i] != u || p.InFlight {
			continue
		}
		f, _ := pr.objective.Check(i)
		op, outcome := pr.attempt(f)
		switch outcome {
		case Proposed:
			out = append(out, op)
			// If the operator moves a neighbour, the partition goes on waiting: the core may not begin
			// the operator.
			if op.Partition == pr.state.Partitions[i].ID {
				pr.waiting.put(i, objective.UrgencyNone)
			}
			free = !sends(u) || pr.anyFree()
		case Waits:
		case Stuck:
			pr.setStuck(f)
			pr.waiting.put(i, objective.UrgencyNone)
		}
	}
	return out
}

// maxVisits is how many waiting partitions a step looks at. Most of them need no search.
func (pr *Proposer) maxVisits() int { return 8 * pr.state.Settings().Searches }

// anyFree says whether some node can receive a snapshot.
func (pr *Proposer) anyFree() bool {
	for i := range pr.state.Nodes {
		if pr.state.Nodes[i].Condition.Is(state.Open) &&
			pr.objective.Busy(uint16(i)) == planner.Allowed {
			return true
		}
	}
	return false
}

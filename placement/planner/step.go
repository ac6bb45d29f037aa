package planner

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Proposal is what a step proposes.
type Proposal struct {
	// Operators are in the order in which they matter.
	Operators []Operator
	// Blocked is how many partitions nothing can be done about although something is wrong, and
	// Waiting how many wait for a limit, a pause or room. WhyPartition tells of each.
	Blocked, Waiting int
	// FirstBlocked has the blocked of the lowest ids, at most 16.
	FirstBlocked []keys.PartitionID
}

// maxNamed is how many partitions are named where there may be many.
const maxNamed = 16

// Step proposes what to do now. In flight is every operator that the core has begun and that has
// not ended; of what an earlier step proposed and the core has not begun, nothing is remembered. An
// operator must be listed until SetPartition has been told of the descriptor, or of Ended, that
// ended it.
//
// The same State, time and flights give the same operators. What changed since the last step is
// looked at, and what waits; for balance, the nodes that are outside of their bands.
func (s *State) Step(now time.Time, inFlight []Flight) Proposal {
	last := s.now
	s.now = now
	s.searches, s.visits, s.scans, s.probes = 0, 0, 0, 0
	clear(s.full)
	s.judge()
	s.age(last)
	s.setFlights(inFlight)
	s.weigh()
	s.look()
	s.measure()
	out := Proposal{}
	for u := range urgeBlocked {
		if !s.settings.Paused {
			first, then := s.waiting.turns(s, u)
			out.Operators = s.serve(u, then, s.serve(u, first, out.Operators))
		}
	}
	if !s.settings.Paused {
		out.Operators = s.balance(out.Operators)
	}
	for i := range s.flights {
		// Balance may have moved what waited for something else.
		s.waiting.put(s, s.flights[i].partition, urgeNothing)
	}
	out.Blocked, out.FirstBlocked = s.blocked()
	out.Waiting = s.waiting.total()
	return out
}

// serve attempts what waits in a queue until a limit is reached.
func (s *State) serve(u urgency, queue []uint32, out []Operator) []Operator {
	sends := u == urgeLast || u == urgeRepair || u == urgeGrow || u == urgeLeave || u == urgeRule ||
		u == urgeSpread
	free := !sends || s.anyFree()
	for _, i := range queue {
		if !free || s.working >= s.settings.MaxOperators ||
			s.searches >= s.settings.Searches || s.visits >= s.maxVisits() {
			break
		}
		s.visits++
		if p := &s.partitions[i]; p.id == 0 || s.marks[i].urge != u || p.flying {
			continue
		}
		f := s.check(i)
		op, outcome := s.attempt(f)
		switch outcome {
		case proposed:
			out = append(out, op)
			// Where a neighbour is moved for its sake, it goes on waiting: the core may not begin that.
			if op.Partition == s.partitions[i].id {
				s.waiting.put(s, i, urgeNothing)
			}
			free = !sends || s.anyFree()
		case waits:
		case stays:
			s.setStuck(f)
			s.waiting.put(s, i, urgeNothing)
		}
	}
	return out
}

// maxVisits is how many of those that wait a step looks at. Most need no search.
func (s *State) maxVisits() int { return 8 * s.settings.Searches }

// anyFree says whether some node can receive a snapshot.
func (s *State) anyFree() bool {
	for i := range s.nodes {
		if s.nodes[i].cond.is(open) && s.busy(uint16(i)) == Allowed {
			return true
		}
	}
	return false
}

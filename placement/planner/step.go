package planner

import (
	"slices"
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
	s.now = now
	s.searches, s.scans, s.probes = 0, 0, 0
	s.setFlights(inFlight)
	s.judge()
	found := s.findings()
	s.measure()
	out := Proposal{}
	for i, f := range found {
		if s.settings.Paused || len(s.flights) >= s.settings.MaxOperators ||
			s.searches >= s.settings.Searches {
			for _, f := range found[i:] {
				s.touch(f.partition)
			}
			out.Waiting += len(found) - i
			break
		}
		op, outcome := s.attempt(f)
		switch outcome {
		case proposed:
			out.Operators = append(out.Operators, op)
		case waits:
			out.Waiting++
			s.touch(f.partition)
		case stays:
			s.setStuck(f.partition)
		}
	}
	if !s.settings.Paused {
		out.Operators = s.balance(out.Operators)
	}
	out.Blocked, out.FirstBlocked = s.blocked()
	return out
}

func (s *State) setStuck(i uint32) {
	p := &s.partitions[i]
	p.flags |= flagStuck
	if p.flags&flagListed == 0 {
		p.flags |= flagListed
		s.stuck = append(s.stuck, i)
	}
}

// blocked counts what is stuck, and drops what no longer is.
func (s *State) blocked() (int, []keys.PartitionID) {
	kept := s.stuck[:0]
	var first []keys.PartitionID
	for _, i := range s.stuck {
		p := &s.partitions[i]
		if p.id == 0 || p.flags&flagStuck == 0 {
			p.flags &^= flagStuck | flagListed
			continue
		}
		kept = append(kept, i)
		first = append(first, p.id)
	}
	s.stuck = kept
	slices.Sort(first)
	if len(first) > maxNamed {
		first = first[:maxNamed:maxNamed]
	}
	return len(kept), first
}

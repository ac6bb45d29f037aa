package main

import (
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
)

// need is what a fault needs of the machine.
type need uint

const (
	// needDisk is a disk of its own for each server that can be filled; needFreeze one that can be
	// stopped.
	needDisk need = 1 << iota
	needFreeze
)

// kind is a kind of fault as far as the schedule is concerned.
type kind struct {
	name string
	// weight is how often it is drawn, beside the others'.
	weight int
	// shortest and longest bound how long it lasts.
	shortest, longest time.Duration
	needs             need
	// settles says for how long it is felt after its end.
	settles calm.Kind
	// alone: it never happens together with another.
	alone bool
	// begin makes it happen. An error is one of the harness, and ends the run.
	begin func(w *world, random *rand.Rand, hold time.Duration) (*fault, error)
}

// drawn is a fault that is to happen.
type drawn struct {
	kind *kind
	hold time.Duration
	// after is how long after the first fault of its step it begins.
	after time.Duration
	// seed is of the fault's own choices.
	seed uint64
}

// step is what happens between two moments at which everything is whole.
type step struct {
	// rest is how long the cluster is left alone before.
	rest   time.Duration
	faults []drawn
}

// schedule draws steps. The same seed and kinds give the same steps, whatever happens in between.
type schedule struct {
	random *rand.Rand
	kinds  []*kind
	total  int
}

const (
	shortestRest, longestRest = time.Second, 4 * time.Second
	// togetherOneIn is how rarely faults overlap, mostTogether how many do at most.
	togetherOneIn, mostTogether = 5, 3
)

// newSchedule draws from those kinds whose needs are met.
func newSchedule(seed uint64, kinds []kind, have need) *schedule {
	s := &schedule{random: rand.New(rand.NewPCG(seed, 0x6e656d65736973))}
	for i := range kinds {
		if k := &kinds[i]; k.weight > 0 && k.needs&^have == 0 {
			s.kinds = append(s.kinds, k)
			s.total += k.weight
		}
	}
	return s
}

func (s *schedule) next() step {
	next := step{rest: between(s.random, shortestRest, longestRest)}
	count := 1
	if s.random.IntN(togetherOneIn) == 0 {
		count = 2 + s.random.IntN(mostTogether-1)
	}
	for len(next.faults) < count {
		d := s.draw()
		if d.kind.alone {
			if len(next.faults) > 0 {
				continue
			}
			count = 1
		}
		if len(next.faults) > 0 {
			d.after = between(s.random, 0, next.faults[0].hold)
		}
		next.faults = append(next.faults, d)
		if !s.anyTogether() {
			break
		}
	}
	return next
}

// anyTogether says whether there is a kind that is not always alone.
func (s *schedule) anyTogether() bool {
	for _, k := range s.kinds {
		if !k.alone {
			return true
		}
	}
	return false
}

func (s *schedule) draw() drawn {
	n := s.random.IntN(s.total)
	for _, k := range s.kinds {
		if n -= k.weight; n < 0 {
			return drawn{kind: k, hold: between(s.random, k.shortest, k.longest),
				seed: s.random.Uint64()}
		}
	}
	panic("nemesis: the weights do not add up") // INVARIANT: total is their sum
}

// between draws a duration from [low, high].
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)+1))
}

package main

import (
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
)

// need is a requirement of a fault on the machine.
type need uint

const (
	// needDisk requires a disk for each server that can be filled. needFreeze requires a disk for each
	// server that can be frozen.
	needDisk need = 1 << iota
	needFreeze
)

// kind is a kind of fault, with the properties that the schedule needs.
type kind struct {
	name string
	// weight is the relative frequency of the kind.
	weight int
	// shortest and longest bound the duration of the fault.
	shortest, longest time.Duration
	needs             need
	// settles says how long the fault has effects after its end.
	settles calm.Kind
	// alone means that the fault never overlaps with another fault.
	alone bool
	// begin starts the fault. An error is an error of the harness, and ends the run.
	begin func(w *world, random *rand.Rand, hold time.Duration) (*fault, error)
}

// drawn is a fault that the schedule has drawn.
type drawn struct {
	kind *kind
	hold time.Duration
	// after is the delay of the fault's start after the first fault of its step.
	after time.Duration
	// seed is the seed of the fault's own random choices.
	seed uint64
}

// step has the faults between two moments without faults.
type step struct {
	// rest is the time for which the cluster is left alone before the step.
	rest   time.Duration
	faults []drawn
}

// schedule draws steps. The same seed and kinds give the same steps, whatever happens during the
// steps.
type schedule struct {
	random *rand.Rand
	kinds  []*kind
	total  int
}

const (
	shortestRest, longestRest = time.Second, 4 * time.Second
	// togetherOneIn: one in so many steps has faults that overlap. mostTogether is the largest number
	// of overlapping faults.
	togetherOneIn, mostTogether = 5, 3
)

// newSchedule returns a schedule that draws from the kinds whose needs are met.
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

// anyTogether reports whether there is a kind that may overlap with others.
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

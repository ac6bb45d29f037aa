package proof

import (
	"context"
	"math/rand/v2"
	"sort"
	"time"
)

// Pace stretches the pauses of all workloads of a run, so that the same workloads are calm or busy. The zero Pace leaves
// them as they are.
type Pace struct {
	// Factor multiplies all pauses; 0 is 1. Above 1 is calmer, below busier.
	Factor float64
	// Every so often a burst of length Burst begins, in which BurstFactor multiplies the pauses in addition. 0: no bursts.
	Every, Burst time.Duration
	BurstFactor  float64
	// Storms are when something happens to the cluster, in order and apart. In a storm BurstFactor alone multiplies the pauses, and
	// nobody rests through the beginning of one.
	Storms []Storm
}

// Storm is from when until when, in the time of the run.
type Storm struct{ From, Until time.Duration }

// next is the storm at a moment of the run, or the next one; false if there is none any more.
func (p Pace) next(elapsed time.Duration) (Storm, bool) {
	i := sort.Search(len(p.Storms), func(i int) bool { return p.Storms[i].Until > elapsed })
	if i == len(p.Storms) {
		return Storm{}, false
	}
	return p.Storms[i], true
}

// pause is how long to rest at a moment of the run, instead of up to d.
func (p Pace) pause(elapsed, d time.Duration, random *rand.Rand) time.Duration {
	upTo := func(factor float64) time.Duration {
		return time.Duration(random.Int64N(int64(float64(d)*factor) + 1))
	}
	storm, expected := p.next(elapsed)
	if expected && storm.From <= elapsed {
		return upTo(p.BurstFactor)
	}
	calm := upTo(p.at(elapsed))
	if until := storm.From - elapsed; expected && calm > until {
		return until + upTo(p.BurstFactor)
	}
	return calm
}

// at is the factor at a moment outside of storms.
func (p Pace) at(elapsed time.Duration) float64 {
	factor := p.Factor
	if factor == 0 {
		factor = 1
	}
	if p.Every > 0 && elapsed%p.Every >= p.Every-p.Burst {
		factor *= p.BurstFactor
	}
	return factor
}

// Rest pauses a client for up to d, stretched by the pace of the run. It returns false when the context has ended.
func (r *Run) Rest(ctx context.Context, random *rand.Rand, d time.Duration) bool {
	timer := time.NewTimer(r.Pace.pause(r.Elapsed(), d, random))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

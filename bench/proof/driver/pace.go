package driver

import (
	"context"
	"math/rand/v2"
	"sort"
	"time"
)

// Pace stretches the pauses of all workloads of a run, so that the same workloads are calm or busy.
// The zero Pace leaves them as they are.
type Pace struct {
	// Factor multiplies all pauses; 0 is 1. Above 1 is calmer, below busier.
	Factor float64
	// Every so often a burst of length Burst begins, in which BurstFactor multiplies the pauses in
	// addition. 0: no bursts.
	Every, Burst time.Duration
	BurstFactor  float64
	// Storms are when something happens to the cluster, in order and apart. In a storm BurstFactor
	// alone multiplies the pauses, and no client rests through the beginning of one.
	Storms []Storm
	// Finale multiplies the pauses instead of all others once the run's finale has begun; 0 is 1.
	Finale float64
	// Steady multiplies the pauses of Keep before the finale; 0 is 1.
	Steady float64
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

// stretch draws a pause of up to d times a factor; 0 is 1.
func stretch(d time.Duration, factor float64, random *rand.Rand) time.Duration {
	if factor == 0 {
		factor = 1
	}
	return time.Duration(random.Int64N(int64(float64(d)*factor) + 1))
}

// BeginFinale begins the last part of a run, in which nothing happens to the cluster any more, and
// workloads that rest wake up: so that every run has a calm with traffic, however stormy it was. It
// is called once.
func (r *Run) BeginFinale() { close(r.finale) }

// Rest pauses a client for up to d, stretched by the pace of the run. It returns false when the
// context has ended.
func (r *Run) Rest(ctx context.Context, random *rand.Rand, d time.Duration) bool {
	select {
	case <-r.finale:
		return sleep(ctx, nil, stretch(d, r.Pace.Finale, random))
	default:
	}
	return sleep(ctx, r.finale, r.Pace.pause(r.Elapsed(), d, random))
}

// Keep is Rest for workloads that show nothing unless they are busy: in the finale it does not
// stretch the pauses, and before that it does so evenly, in calm and in storm.
func (r *Run) Keep(ctx context.Context, random *rand.Rand, d time.Duration) bool {
	select {
	case <-r.finale:
		return sleep(ctx, nil, stretch(d, 1, random))
	default:
		return sleep(ctx, r.finale, stretch(d, r.Pace.Steady, random))
	}
}

// sleep returns false when the context has ended, and early when wake is closed.
func sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

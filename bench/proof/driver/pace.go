package driver

import (
	"context"
	"math/rand/v2"
	"sort"
	"time"
)

// Pace stretches the pauses of all workloads of a run, so that the same workloads can be calm or
// busy. The zero Pace does not change the pauses.
type Pace struct {
	// Factor multiplies all pauses. 0 means 1. With a factor above 1 the workloads are calmer. With a
	// factor below 1 they are busier.
	Factor float64
	// In each interval Every, a burst of length Burst begins. In a burst BurstFactor also multiplies
	// the pauses. 0 means that there are no bursts.
	Every, Burst time.Duration
	BurstFactor  float64
	// Storms are the times when faults happen to the cluster. They are in order and do not overlap. In
	// a storm only BurstFactor multiplies the pauses. No client's pause lasts beyond the beginning of
	// a storm.
	Storms []Storm
	// Finale multiplies the pauses alone after the run's finale has begun. 0 means 1.
	Finale float64
	// Steady multiplies the pauses of Keep before the finale. 0 means 1.
	Steady float64
}

// Storm has the beginning and the end of a storm, in the time of the run.
type Storm struct{ From, Until time.Duration }

// next returns the storm at a time of the run, or the next storm. It returns false if no storm is
// left.
func (p Pace) next(elapsed time.Duration) (Storm, bool) {
	i := sort.Search(len(p.Storms), func(i int) bool { return p.Storms[i].Until > elapsed })
	if i == len(p.Storms) {
		return Storm{}, false
	}
	return p.Storms[i], true
}

// pause returns the length of a pause at a time of the run, instead of a length of up to d.
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

// at returns the factor at a time outside of storms.
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

// stretch draws a pause of up to d and multiplies it by a factor. A factor of 0 means 1.
func stretch(d time.Duration, factor float64, random *rand.Rand) time.Duration {
	if factor == 0 {
		factor = 1
	}
	return time.Duration(random.Int64N(int64(float64(d)*factor) + 1))
}

// BeginFinale begins the last part of a run. Then no fault happens to the cluster any more, and
// workloads that rest wake up. So every run has a calm with traffic, however many storms it had.
// BeginFinale must be called only once.
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

// Keep is Rest for workloads that find defects only if they are busy. In the finale Keep does not
// stretch the pauses. Before the finale it stretches them by the same factor in calm and in storm.
func (r *Run) Keep(ctx context.Context, random *rand.Rand, d time.Duration) bool {
	select {
	case <-r.finale:
		return sleep(ctx, nil, stretch(d, 1, random))
	default:
		return sleep(ctx, r.finale, stretch(d, r.Pace.Steady, random))
	}
}

// sleep returns false when the context has ended. It returns early when wake is closed.
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

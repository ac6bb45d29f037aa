package main

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
)

const (
	// restEvery is the number of steps between two rests. There is a rest at the end of a run, too. In
	// a rest the cluster is left alone until no fault has an effect any more, and then for restLasts.
	// An operation that fails in a rest is a violation. Without a rest, one storm follows another.
	restEvery = 5
	restLasts = 15 * time.Second
)

// rest leaves the cluster alone.
func (n *nemesis) rest(ctx context.Context) error {
	since, _ := n.proof.Weather.Clears()
	n.journal.note("left alone: calm in %v, for %v", time.Until(since).Round(ms), restLasts)
	return pass(ctx, max(0, time.Until(since))+restLasts)
}

// lookout notices when the machine gave this process no time to run. The servers had no time either
// then, so such a period counts as a storm.
type lookout struct {
	mu   sync.Mutex
	last time.Time
}

// lookoutEvery is the time between two looks of the lookout.
const lookoutEvery = 20 * ms

// look records a standstill that is not recorded yet.
func (l *lookout) look(weather *calm.Weather) {
	l.mu.Lock()
	now := time.Now()
	still := !l.last.IsZero() && now.Sub(l.last) > stoodStill
	if still {
		l.last = now
	}
	l.mu.Unlock()
	if still {
		weather.Begin()
		weather.End(calm.Settling(calm.Links, electionTimeout))
	}
}

// watch calls look again and again until ctx ends.
func (l *lookout) watch(ctx context.Context, weather *calm.Weather) {
	ticker := time.NewTicker(lookoutEvery)
	defer ticker.Stop()
	for {
		l.look(weather)
		l.mu.Lock()
		l.last = time.Now()
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			l.mu.Lock()
			l.last = time.Time{}
			l.mu.Unlock()
			return
		case <-ticker.C:
		}
	}
}

package main

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
)

const (
	// restEvery is after how many steps, and besides at the end, the cluster is left alone until
	// nothing is felt of any fault, and for restLasts after that: what fails then is a violation.
	// Otherwise a storm follows upon the other.
	restEvery = 5
	restLasts = 15 * time.Second
)

// rest leaves the cluster alone.
func (n *nemesis) rest(ctx context.Context) error {
	since, _ := n.proof.Weather.Clears()
	n.journal.note("left alone: calm in %v, for %v", time.Until(since).Round(ms), restLasts)
	return pass(ctx, max(0, time.Until(since))+restLasts)
}

// lookout notices when the machine had no time for this process: then it has none for the servers
// either, and it is a storm.
type lookout struct {
	mu   sync.Mutex
	last time.Time
}

// lookoutEvery is how often the lookout wants to run.
const lookoutEvery = 20 * ms

// look notices a standstill that has not been noticed yet.
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

// watch looks again and again until ctx ends.
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

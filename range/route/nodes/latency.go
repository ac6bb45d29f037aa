package nodes

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// latencyWindow is how long the shortest latency of a window counts at least; twice as long, at
	// most.
	latencyWindow = 4 * time.Second
	// LatencyStep is by which part a latency has to change to count: 1/10.
	LatencyStep = 10
)

// Latency is how far away a node is: the shortest time in which it has answered in the last
// seconds.
//
// The shortest one is that of the way, and of what a node needs for the least that it does. The
// mean would be mostly that of queues, of this process too, which come and go: replicas that are
// equally far would seem not to be, and the one that seems nearest would get all reads, until it is
// the one with the longest queue. (BBR estimates the way by the same means: Cardwell et al., "BBR:
// Congestion-Based Congestion Control", 2016.)
//
// So a shorter way counts at once, and a longer one after two windows at most. A latency counts as
// it was last shown until it has changed by a tenth, so that the choice does not flap.
type Latency struct {
	// quick is below what an answer has to be to count within the window that began: most answers
	// need no lock.
	quick atomic.Int64
	began atomic.Pointer[time.Time]
	mu    sync.Mutex
	// current and last are the shortest ones of this window and of the one before; 0: none.
	current, last time.Duration
	// shown is what counts; 0: it is not known.
	shown atomic.Int64
}

// Observe takes in how long an answer took that came now.
func (l *Latency) Observe(took time.Duration, now time.Time) {
	took = max(took, 1)
	if int64(took) >= l.quick.Load() && within(l.began.Load(), now) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if began := l.began.Load(); !within(began, now) {
		l.last = l.current
		if began == nil || now.Sub(*began) >= 2*latencyWindow {
			l.last = 0 // there was none in the window before this one
		}
		l.current = 0
		l.began.Store(&now)
	}
	if l.current == 0 || took < l.current {
		l.current = took
	}
	l.quick.Store(int64(l.current))
	shortest := l.current
	if l.last != 0 {
		shortest = min(shortest, l.last)
	}
	shown := time.Duration(l.shown.Load())
	if shown == 0 || (shortest-shown).Abs() > shown/LatencyStep {
		l.shown.Store(int64(shortest))
	}
}

// within says that a window that began is not over. If the clock was set back it is.
func within(began *time.Time, now time.Time) bool {
	if began == nil {
		return false
	}
	passed := now.Sub(*began)
	return passed >= 0 && passed < latencyWindow
}

// Known is the latency that counts; 0: it is not known.
func (l *Latency) Known() time.Duration { return time.Duration(l.shown.Load()) }

package route

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// latencyWindow is how long the shortest latency of a window counts at least; twice as long, at
	// most.
	latencyWindow = 4 * time.Second
	// latencyStep is by which part a latency has to change to count: 1/10.
	latencyStep = 10
)

// latency is how far away a node is: the shortest time in which it has answered in the last seconds.
//
// The shortest one is that of the way, and of what a node needs for the least that it does. The mean
// would be mostly that of queues, of this process too, which come and go: replicas that are equally
// far would seem not to be, and the one that seems nearest would get all reads, until it is the one
// with the longest queue. (BBR estimates the way by the same means: Cardwell et al., "BBR:
// Congestion-Based Congestion Control", 2016.)
//
// So a shorter way counts at once, and a longer one after two windows at most. A latency counts as it
// was last shown until it has changed by a tenth, so that the choice does not flap.
type latency struct {
	// quick is below what an answer has to be to count before the window ends, which is at ends, in
	// nanoseconds since 1970: most answers need no lock.
	quick, ends atomic.Int64
	mu          sync.Mutex
	// current and last are the shortest ones of this window and of the one before; 0: none.
	current, last time.Duration
	// shown is what counts; 0: it is not known.
	shown atomic.Int64
}

// observe takes in how long an answer took that came now.
func (l *latency) observe(took time.Duration, now time.Time) {
	took = max(took, 1)
	at := now.UnixNano()
	if int64(took) >= l.quick.Load() && at < l.ends.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch over := at - l.ends.Load(); {
	case over >= int64(latencyWindow):
		l.last, l.current = 0, 0 // there was none in the window before this one
		l.ends.Store(at + int64(latencyWindow))
	case over >= 0:
		l.last, l.current = l.current, 0
		l.ends.Store(at + int64(latencyWindow))
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
	if shown == 0 || (shortest-shown).Abs() > shown/latencyStep {
		l.shown.Store(int64(shortest))
	}
}

// known is the latency that counts; 0: it is not known.
func (l *latency) known() time.Duration { return time.Duration(l.shown.Load()) }

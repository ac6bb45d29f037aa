package authorize

import (
	"sync"
	"time"
)

// limitedEvery is how often a call that had no success is logged in the long run, and limitedBurst
// how many are at once.
const (
	limitedEvery = 100 * time.Millisecond
	limitedBurst = 50
)

// auditLimit bounds lines for calls that any client can make. A client that goes on calling gets
// errors as fast as it likes, so not each has a line: the next line says how many had none. The
// zero value is ready for use, by any goroutine.
type auditLimit struct {
	mu sync.Mutex
	// taken are the lines of the burst that are taken, at the time filled.
	taken   int
	filled  time.Time
	omitted int
}

// take says whether there is a line now, and how many calls had none since the last.
func (l *auditLimit) take(now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := now.Sub(l.filled) / limitedEvery; {
	case l.taken == 0 || n < 0 || n >= limitedBurst: // n < 0: the clock was set back
		l.taken, l.filled = 0, now
	case n > 0:
		l.taken = max(0, l.taken-int(n))
		l.filled = l.filled.Add(n * limitedEvery)
	}
	if l.taken == limitedBurst {
		l.omitted++
		return 0, false
	}
	l.taken++
	omitted, l.omitted = l.omitted, 0
	return omitted, true
}

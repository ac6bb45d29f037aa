package authorize

import (
	"sync"
	"time"
)

// limitedEvery is the average time between logged unsuccessful calls, and limitedBurst how many may
// be logged at once.
const (
	limitedEvery = 100 * time.Millisecond
	limitedBurst = 50
)

// auditLimit bounds the lines for calls that any client can make. A client that keeps calling gets
// errors as fast as it likes, so not every call is logged: the next line says how many were
// omitted. The zero value is ready for use, by any goroutine.
type auditLimit struct {
	mu sync.Mutex
	// taken counts the lines of the burst that are used up, as of the time filled.
	taken   int
	filled  time.Time
	omitted int
}

// take reports whether a call is logged now, and how many were omitted since the last line.
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

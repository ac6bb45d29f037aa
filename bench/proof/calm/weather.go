package calm

import (
	"sync"
	"time"
)

// Weather knows which faults are active and since when it is calm. The zero Weather is calm. Its
// methods may be called from any goroutine.
type Weather struct {
	// Look, if not nil, is called before each answer of Calm, from the goroutine that asks. It may
	// call Begin and End: for faults that no injector makes happen, like a machine that has no time
	// for this process. It is set before the first use.
	Look func()

	mu struct {
		sync.Mutex
		// active faults have begun and not ended.
		active int
		// since is when the last storm was over, or will be if no other fault begins.
		since time.Time
	}
}

// Begin says that a fault is about to begin. It is called before the fault has any effect.
func (w *Weather) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.active++
}

// End says that a fault has ended, and for how long it will be felt. It is called once for each
// Begin.
func (w *Weather) End(settling time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.active--
	if since := time.Now().Add(settling); w.mu.since.Before(since) {
		w.mu.since = since
	}
}

// Calm says whether it has been calm from a moment until now.
func (w *Weather) Calm(from time.Time) bool {
	if w.Look != nil {
		w.Look()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.active == 0 && !from.Before(w.mu.since)
}

// Clears is when it will be calm if no other fault begins; false if a fault is active.
func (w *Weather) Clears() (since time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.since, w.mu.active == 0
}

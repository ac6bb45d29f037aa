package calm

import (
	"sync"
	"time"
)

// Weather knows the active faults, and since when it is calm. The zero Weather is calm. Its methods
// are safe for concurrent use.
type Weather struct {
	// Look, if not nil, is called by Calm before each answer. It may call Begin and End for faults
	// that no injector causes, for example a machine that has no time for this process. It must be set
	// before the first use.
	Look func()

	mu struct {
		sync.Mutex
		// active is the number of faults that have begun and not ended.
		active int
		// since is the time when the last storm ended, or will end if no other fault begins.
		since time.Time
	}
}

// Begin records that a fault is about to begin. It must be called before the fault has any effect.
func (w *Weather) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.active++
}

// End records that a fault has ended, and how long its effects may last. It must be called once for
// each Begin.
func (w *Weather) End(settling time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.active--
	if since := time.Now().Add(settling); w.mu.since.Before(since) {
		w.mu.since = since
	}
}

// Calm reports whether it has been calm from the given time until now.
func (w *Weather) Calm(from time.Time) bool {
	if w.Look != nil {
		w.Look()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.active == 0 && !from.Before(w.mu.since)
}

// Clears returns the time when it will be calm if no other fault begins. ok is false if a fault is
// active.
func (w *Weather) Clears() (since time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.since, w.mu.active == 0
}

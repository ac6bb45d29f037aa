package proof

import "sync"

// refusals remembers attempts that had no effect, the last few thousand of them, and why. The zero refusals is empty.
type refusals struct {
	mu struct {
		sync.Mutex
		// newer and older are two generations; the older is forgotten when the newer is full.
		newer, older map[string]string
	}
}

// note remembers an attempt.
func (r *refusals) note(attempt, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.newer) == remembered || r.mu.newer == nil {
		r.mu.older, r.mu.newer = r.mu.newer, make(map[string]string)
	}
	r.mu.newer[attempt] = why
}

// know says why an attempt had no effect, if that is remembered.
func (r *refusals) know(attempt string) (why string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why, refused = r.mu.newer[attempt]; !refused {
		why, refused = r.mu.older[attempt]
	}
	return why, refused
}

package workloads

import "sync"

// refusals remembers the last few thousand attempts that had no effect, and why. The zero refusals
// is empty.
type refusals struct {
	mu struct {
		sync.Mutex
		// refused maps attempts to the reasons why they had no effect. built maps an attempt to the
		// attempt whose commit builds on its write.
		refused, built generations
	}
}

// generations maps attempts to texts, in two generations. The older one is dropped when the newer
// one is full.
type generations struct{ newer, older map[string]string }

func (g *generations) set(attempt, text string) {
	if len(g.newer) == remembered || g.newer == nil {
		g.older, g.newer = g.newer, make(map[string]string)
	}
	g.newer[attempt] = text
}

func (g *generations) get(attempt string) (text string, ok bool) {
	if text, ok = g.newer[attempt]; !ok {
		text, ok = g.older[attempt]
	}
	return text, ok
}

// note remembers an attempt that had no effect. It returns the attempt whose commit builds on it,
// if one is remembered.
func (r *refusals) note(attempt, why string) (on string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.refused.set(attempt, why)
	on, _ = r.mu.built.get(attempt)
	return on
}

// know returns why an attempt had no effect, if that is remembered.
func (r *refusals) know(attempt string) (why string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.refused.get(attempt)
}

// build remembers that the commit of an attempt builds on a write of the attempt below ("": on no
// write). If below had no effect, build returns why, as know does.
func (r *refusals) build(attempt, below string) (why string, refused bool) {
	if below == "" {
		return "", false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.built.set(below, attempt)
	return r.mu.refused.get(below)
}

package workloads

import "sync"

// refusals remembers attempts that had no effect, the last few thousand of them, and why. The zero
// refusals is empty.
type refusals struct {
	mu struct {
		sync.Mutex
		// refused is why attempts had no effect, built the attempt whose commit builds on what
		// another wrote.
		refused, built generations
	}
}

// generations are texts by attempt, in two generations; the older is forgotten when the newer is
// full.
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

// note remembers an attempt. on is a commit that builds on it, if there is one that is remembered.
func (r *refusals) note(attempt, why string) (on string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.refused.set(attempt, why)
	on, _ = r.mu.built.get(attempt)
	return on
}

// know says why an attempt had no effect, if that is remembered.
func (r *refusals) know(attempt string) (why string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.refused.get(attempt)
}

// build remembers that the commit of an attempt builds on what another one has written ("": on
// nothing), and says why that had no effect, as know does.
func (r *refusals) build(attempt, below string) (why string, refused bool) {
	if below == "" {
		return "", false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.built.set(below, attempt)
	return r.mu.refused.get(below)
}

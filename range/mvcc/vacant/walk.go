package vacant

import "slices"

// Walk is a scan that finds vacant spans for a Memory. One goroutine uses it.
type Walk struct {
	memory *Memory
	found  []Span
	// void is set if versions may have been written that the walk was not informed of; written are
	// the versions that it was informed of. The memory's lock guards both.
	void    bool
	written []Write
}

// Walk begins a walk. The iterator that finds the spans must be opened afterwards. It returns nil
// if nothing can be learned now. The caller must call End.
func (m *Memory) Walk() *Walk {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.walks) >= maxWalks {
		return nil
	}
	w := &Walk{memory: m}
	m.walks = append(m.walks, w)
	m.active.Store(true)
	if m.writing.Load() {
		m.endLocked(w)
		return nil
	}
	return w
}

// Found adds a vacant span to the walk. The memory takes over the span's keys.
func (w *Walk) Found(s Span) { w.found = append(w.found, s) }

// End ends the walk. The memory adds the spans that were found, without the keys written since.
func (w *Walk) End() {
	m := w.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.void || len(w.found) == 0 {
		m.endLocked(w)
		return
	}
	// INVARIANT: active stays set until the spans are known. A batch whose Begin comes in between is
	// told, and waits for the lock.
	m.walks = slices.DeleteFunc(m.walks, func(other *Walk) bool { return other == w })
	if m.ending != nil {
		m.ending()
	}
	all := m.Spans()
	for _, s := range w.found {
		if m.budget != nil {
			m.budget.walked.Add(uint64(s.Keys))
		}
		left := []Span{s}
		for i := range w.written {
			left, _ = after(left, &w.written[i], true)
		}
		for _, part := range left {
			all = add(all, part)
		}
	}
	m.storeLocked(all)
}

func (m *Memory) endLocked(w *Walk) {
	m.walks = slices.DeleteFunc(m.walks, func(other *Walk) bool { return other == w })
	m.active.Store(len(m.Spans())+len(m.walks) > 0)
}

// hear records versions that are written during the walk. The caller holds the memory's lock.
func (w *Walk) hear(writes []Write) {
	if w.void = w.void || len(w.written)+len(writes) > maxWritten; w.void {
		w.written = nil
		return
	}
	for _, one := range writes {
		one.Key = slices.Clone(one.Key)
		w.written = append(w.written, one)
	}
}

package replica

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/timer"
)

// bells are timers that go off when they are rung.
type bells struct {
	mu  sync.Mutex
	set map[*bell]struct{}
}

type bell struct {
	of   *bells
	call func()
}

func (b *bells) after(_ time.Duration, f func()) timer.Timer {
	t := &bell{of: b, call: f}
	t.Reset(0)
	return t
}

func (t *bell) Stop() bool {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	_, was := t.of.set[t]
	delete(t.of.set, t)
	return was
}

func (t *bell) Reset(time.Duration) bool {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	_, was := t.of.set[t]
	t.of.set[t] = struct{}{}
	return was
}

func (b *bells) ring() {
	b.mu.Lock()
	all := slices.Collect(maps.Keys(b.set))
	clear(b.set)
	b.mu.Unlock()
	for _, t := range all {
		t.call()
	}
}

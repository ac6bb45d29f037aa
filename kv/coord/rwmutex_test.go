package coord_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Readers share the lock, writers have it alone.
func TestRWMutexUnderContention(t *testing.T) {
	w := begin(t)
	var readers, writers, together atomic.Int32
	var all sync.WaitGroup
	for i := range 8 {
		client := w.client()
		s := w.session(client)
		all.Go(func() {
			for j := range 6 {
				m := client.RWMutex("m")
				if (i+j)%3 == 0 {
					lock, err := m.Lock(w.ctx, s)
					if err != nil {
						t.Error(err)
						return
					}
					if n := writers.Add(1); n != 1 || readers.Load() != 0 {
						t.Errorf("%d writers beside %d readers", n, readers.Load())
					}
					writers.Add(-1)
					if err := lock.Unlock(w.ctx); err != nil {
						t.Error(err)
					}
					continue
				}
				lock, err := m.RLock(w.ctx, s)
				if err != nil {
					t.Error(err)
					return
				}
				if n := readers.Add(1); n > together.Load() {
					together.Store(n)
				}
				if n := writers.Load(); n != 0 {
					t.Errorf("a reader beside %d writers", n)
				}
				readers.Add(-1)
				if err := lock.Unlock(w.ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("up to %d readers at a time", together.Load())
}

// A writer that waits is not overtaken by readers that come later.
func TestRWMutexWritersDoNotStarve(t *testing.T) {
	w := begin(t)
	client := w.client()
	s := w.session(client)
	m := client.RWMutex("m")
	first, err := m.RLock(w.ctx, s)
	w.must(err)
	second, err := m.TryRLock(w.ctx, s)
	w.must(err)
	_, err = m.TryLock(w.ctx, s)
	w.is(err, coord.ErrLocked)
	writing := start(func() (*coord.Lock, error) { return m.Lock(w.ctx, s) })
	w.until("the writer waits", func() bool { return len(w.keys("rwlock/m/write/")) == 1 })
	_, err = m.TryRLock(w.ctx, s)
	w.is(err, coord.ErrLocked)
	reading := start(func() (*coord.Lock, error) { return m.RLock(w.ctx, s) })
	w.until("a reader waits", func() bool { return len(w.keys("rwlock/m/read/")) == 3 })
	w.must(second.Unlock(w.ctx))
	w.must(first.Unlock(w.ctx))
	writer, err := wait(w, "the writer has it", writing)
	w.must(err)
	select {
	case r := <-reading:
		t.Fatalf("%+v beside the writer", r)
	default:
	}
	if writer.Token() <= first.Token() {
		t.Errorf("the writer's token %d, a reader's before it %d", writer.Token(), first.Token())
	}
	w.must(writer.Unlock(w.ctx))
	_, err = wait(w, "the reader has it", reading)
	w.must(err)
}

package coord_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Under contention one holds the lock at a time, and tokens rise.
func TestMutexUnderContention(t *testing.T) {
	w := begin(t)
	var holders atomic.Int32
	var tokens []coord.Token // written under the lock
	var all sync.WaitGroup
	for range 3 {
		client := w.client()
		for range 3 {
			s := w.session(client)
			all.Go(func() {
				for range 8 {
					lock, err := client.Mutex("m").Lock(w.ctx, s)
					if err != nil {
						t.Error(err)
						return
					}
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					tokens = append(tokens, lock.Token())
					holders.Add(-1)
					if err := lock.Unlock(w.ctx); err != nil {
						t.Error(err)
					}
					if !errors.Is(context.Cause(lock.Held()), coord.ErrReleased) {
						t.Errorf("unlocked, its context ended with %v", context.Cause(lock.Held()))
					}
				}
			})
		}
	}
	all.Wait()
	if len(tokens) != 72 || !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != 72 {
		t.Errorf("tokens %v", tokens)
	}
	if keys := w.keys("lock/"); len(keys) != 0 {
		t.Errorf("%q is left", keys)
	}
}

// line lets n sessions wait for a lock one after the other, and returns where they come in.
func (w *world) line(s *coord.Session, n int) []<-chan result[*coord.Lock] {
	w.Helper()
	var waiting []<-chan result[*coord.Lock]
	before := len(w.keys("lock/m/"))
	for i := range n {
		waiting = append(waiting, start(func() (*coord.Lock, error) {
			return s.Client().Mutex("m").Lock(w.ctx, s)
		}))
		w.until("one more waits", func() bool { return len(w.keys("lock/m/")) == before+i+1 })
	}
	return waiting
}

// The lock goes to those that wait in the order in which they came, also in one session.
func TestMutexIsFair(t *testing.T) {
	w := begin(t)
	s := w.session(w.client())
	waiting := w.line(s, 6)
	for i, c := range waiting {
		lock, err := wait(w, "the lock", c)
		w.must(err)
		for _, later := range waiting[i+1:] {
			select {
			case r := <-later:
				t.Fatalf("%+v while another one holds the lock", r)
			default:
			}
		}
		w.must(lock.Unlock(w.ctx))
	}
}

// A holder whose client is closed, as when its process dies, holds the lock for one time to live at
// most; the holder knows at once.
func TestMutexHolderDies(t *testing.T) {
	w := begin(t)
	dying := w.client()
	s := w.session(dying, coord.TTL(2e9))
	lock, err := dying.Mutex("m").Lock(w.ctx, s)
	w.must(err)
	next := w.line(w.session(w.client()), 1)[0]
	w.must(dying.Close())
	w.done("the dead holder's context has ended", lock.Held().Done())
	w.is(context.Cause(lock.Held()), coord.ErrSessionEnded)
	other, err := wait(w, "the lock", next)
	w.must(err)
	if other.Token() <= lock.Token() {
		t.Errorf("token %d after %d", other.Token(), lock.Token())
	}
	if err := lock.Unlock(w.ctx); !errors.Is(err, coord.ErrSessionEnded) {
		t.Errorf("unlocking what was lost: %v", err)
	}
}

// A holder that is cut off knows that it lost the lock before another one has it.
func TestMutexHolderIsCutOff(t *testing.T) {
	w := begin(t)
	p := w.proxied()
	client := w.clientAt(p.endpoints())
	s := w.session(client, coord.TTL(2e9))
	lock, err := client.Mutex("m").Lock(w.ctx, s)
	w.must(err)
	other := w.client()
	waiting := w.session(other)
	next := start(func() (error, error) {
		l, err := other.Mutex("m").Lock(w.ctx, waiting)
		if err != nil {
			return nil, err
		}
		return lock.Err(), l.Err() // what the former holder believes when another one holds it
	})
	w.until("the other one waits", func() bool { return len(w.keys("lock/m/")) == 2 })
	p.cut()
	before, err := wait(w, "the lock", next)
	w.must(err)
	w.is(before, coord.ErrSessionEnded, coord.ErrSessionUnconfirmed)
	w.done("the context has ended", lock.Held().Done())
	w.done("the session has ended", s.Done())
	if _, err := client.Mutex("m").Lock(w.ctx, s); !errors.Is(err, coord.ErrSessionUnconfirmed) {
		t.Errorf("locking under a session that has ended: %v", err)
	}
}

// One that stops to wait is not waited for.
func TestMutexCancelled(t *testing.T) {
	w := begin(t)
	client := w.client()
	s := w.session(client)
	lock, err := client.Mutex("m").Lock(w.ctx, s)
	w.must(err)
	ctx, cancel := context.WithCancel(w.ctx)
	given := start(func() (*coord.Lock, error) { return client.Mutex("m").Lock(ctx, s) })
	w.until("it waits", func() bool { return len(w.keys("lock/m/")) == 2 })
	last := w.line(s, 1)[0]
	cancel()
	if _, err := wait(w, "the call ends", given); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	w.until("its key is gone", func() bool { return len(w.keys("lock/m/")) == 2 })
	w.must(lock.Unlock(w.ctx))
	_, err = wait(w, "the lock", last)
	w.must(err)
	if _, err := client.Mutex("m").Lock(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

// TryLock does not wait, and leaves nothing.
func TestTryLock(t *testing.T) {
	w := begin(t)
	client := w.client()
	s, other := w.session(client), w.session(client)
	lock, err := client.Mutex("m").TryLock(w.ctx, s)
	w.must(err)
	for _, s := range []*coord.Session{s, other} {
		_, err := client.Mutex("m").TryLock(w.ctx, s)
		w.is(err, coord.ErrLocked)
	}
	if keys := w.keys("lock/m/"); len(keys) != 1 {
		t.Errorf("keys %q", keys)
	}
	w.must(lock.Unlock(w.ctx))
	_, err = client.Mutex("m").TryLock(w.ctx, other)
	w.must(err)
	// A name that begins with another one is another lock.
	_, err = client.Mutex("m/x").TryLock(w.ctx, s)
	w.must(err)
	_, err = client.Mutex("").TryLock(w.ctx, s)
	w.is(err, coord.ErrInvalidArgument)
}

// A client that deletes the key takes the lock away; the holder is told.
func TestMutexKeyDeleted(t *testing.T) {
	w := begin(t)
	client := w.client()
	s := w.session(client)
	lock, err := client.Mutex("m").Lock(w.ctx, s)
	w.must(err)
	waiting := w.line(s, 1)[0]
	_, err = w.admin.Etcd().Delete(w.ctx, w.prefix+"lock/", clientv3.WithPrefix())
	w.must(err)
	w.done("the holder is told", lock.Held().Done())
	w.is(context.Cause(lock.Held()), coord.ErrLost)
	w.is(lock.Unlock(w.ctx), coord.ErrLost)
	_, err = wait(w, "who waits is told", waiting)
	w.is(err, coord.ErrLost)
	w.must(s.Err())
}

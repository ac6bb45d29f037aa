package coord_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// A call that waits in a line hears at once that its key was deleted, although the holder goes on
// holding.
func TestWaiterWhoseKeyIsDeleted(t *testing.T) {
	type waits func(context.Context, *coord.Client, *coord.Session) error
	mutex := func(ctx context.Context, c *coord.Client, s *coord.Session) error {
		_, err := c.Mutex("x").Lock(ctx, s)
		return err
	}
	write := func(ctx context.Context, c *coord.Client, s *coord.Session) error {
		_, err := c.RWMutex("x").Lock(ctx, s)
		return err
	}
	read := func(ctx context.Context, c *coord.Client, s *coord.Session) error {
		_, err := c.RWMutex("x").RLock(ctx, s)
		return err
	}
	campaign := func(ctx context.Context, c *coord.Client, s *coord.Session) error {
		_, err := c.Election("x").Campaign(ctx, s, nil)
		return err
	}
	enter := func(ctx context.Context, c *coord.Client, s *coord.Session) error {
		_, err := c.DoubleBarrier("x", 3).Enter(ctx, s)
		return err
	}
	for _, c := range []struct {
		name string
		// hold returns at once, or, if it is nil, nothing holds.
		hold, call waits
		// keys is in the names of the keys.
		keys string
	}{
		{"Mutex", mutex, mutex, "/lock/x/"},
		{"RWMutex, a writer behind a writer", write, write, "/rwlock/x/"},
		{"RWMutex, a writer behind a reader", read, write, "/rwlock/x/"},
		{"RWMutex, a reader", write, read, "/rwlock/x/"},
		{"Election", campaign, campaign, "/election/x/"},
		{"DoubleBarrier", nil, enter, "/double-barrier/x/members/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := begin(t)
			s := w.session(w.admin)
			if c.hold != nil {
				w.must(c.hold(w.ctx, w.admin, s))
			}
			before := w.keys(c.keys)
			waiting := start(func() (nothing, error) { return nothing{}, c.call(w.ctx, w.admin, s) })
			var own string
			w.until("it waits", func() bool {
				keys := w.keys(c.keys)
				if i := slices.IndexFunc(keys, func(k string) bool {
					return !slices.Contains(before, k)
				}); i >= 0 {
					own = keys[i]
				}
				return own != ""
			})
			_, err := w.admin.Etcd().Delete(w.ctx, own)
			w.must(err)
			_, err = wait(w, "the call ends", waiting)
			w.is(err, coord.ErrLost)
			w.must(s.Err())
			if keys := w.keys(c.keys); !slices.Equal(keys, before) {
				t.Errorf("keys %q, before %q", keys, before)
			}
		})
	}
}

// A participant that leaves hears that the round was removed, although others have not left.
func TestLeavingARoundThatIsRemoved(t *testing.T) {
	w := begin(t)
	enter := func(s *coord.Session) <-chan result[*coord.Participation] {
		return start(func() (*coord.Participation, error) {
			return w.admin.DoubleBarrier("x", 2).Enter(w.ctx, s)
		})
	}
	s := w.session(w.admin)
	first, second := enter(s), enter(s)
	p, err := wait(w, "the first enters", first)
	w.must(err)
	_, err = wait(w, "the second enters", second)
	w.must(err)
	leaving := start(func() (nothing, error) { return nothing{}, p.Leave(w.ctx) })
	w.until("its key is gone", func() bool { return len(w.keys("/members/")) == 1 })
	_, err = w.admin.Etcd().Delete(w.ctx, w.keys("/round")[0])
	w.must(err)
	_, err = wait(w, "it has left", leaving)
	w.must(err)
}

// What is held is given back under its own context, and is gone then.
func TestGivenBackUnderItsOwnContext(t *testing.T) {
	for _, c := range []struct {
		name string
		// hold returns the context of what is held, and gives that back.
		hold func(*world, *coord.Session) (context.Context, func(context.Context) error)
		keys string
	}{
		{"Lock", func(w *world, s *coord.Session) (context.Context, func(context.Context) error) {
			l, err := w.admin.Mutex("x").Lock(w.ctx, s)
			w.must(err)
			return l.Held(), l.Unlock
		}, "/lock/"},
		{"RWMutex", func(w *world, s *coord.Session) (context.Context, func(context.Context) error) {
			l, err := w.admin.RWMutex("x").RLock(w.ctx, s)
			w.must(err)
			return l.Held(), l.Unlock
		}, "/rwlock/"},
		{"Leadership", func(w *world, s *coord.Session) (context.Context, func(context.Context) error) {
			l, err := w.admin.Election("x").Campaign(w.ctx, s, nil)
			w.must(err)
			return l.Held(), l.Resign
		}, "/election/"},
		{"Item, returned", func(w *world, s *coord.Session) (context.Context,
			func(context.Context) error) {
			w.must(w.admin.Queue("x").Put(w.ctx, nil))
			i, err := w.admin.Queue("x").Take(w.ctx, s)
			w.must(err)
			return i.Held(), i.Return
		}, "/claims/"},
		{"Item, done", func(w *world, s *coord.Session) (context.Context,
			func(context.Context) error) {
			w.must(w.admin.Queue("x").Put(w.ctx, nil))
			i, err := w.admin.Queue("x").Take(w.ctx, s)
			w.must(err)
			return i.Held(), i.Done
		}, "/claims/"},
		{"Ephemeral", func(w *world, s *coord.Session) (context.Context, func(context.Context) error) {
			e, err := s.Create(w.ctx, "mine", nil)
			w.must(err)
			return e.Held(), e.Delete
		}, "/mine"},
		{"Registration", func(w *world, s *coord.Session) (context.Context,
			func(context.Context) error) {
			r, err := w.admin.Service("x").Register(w.ctx, s, coord.Instance{ID: "1"})
			w.must(err)
			return r.Held(), r.Deregister
		}, "/service/"},
		{"Participation", func(w *world, s *coord.Session) (context.Context,
			func(context.Context) error) {
			p, err := w.admin.DoubleBarrier("x", 1).Enter(w.ctx, s)
			w.must(err)
			return p.Held(), p.Leave
		}, "/double-barrier/"},
		{"Session", func(w *world, s *coord.Session) (context.Context, func(context.Context) error) {
			_, err := w.admin.Mutex("x").Lock(w.ctx, s)
			w.must(err)
			return s.Context(), s.Close
		}, "/lock/"},
		{"Session, under what it holds", func(w *world, s *coord.Session) (context.Context,
			func(context.Context) error) {
			l, err := w.admin.Mutex("x").Lock(w.ctx, s)
			w.must(err)
			return l.Held(), s.Close
		}, "/lock/"},
	} {
		for _, child := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				w := begin(t)
				held, give := c.hold(w, w.session(w.admin))
				ctx := held
				if child {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				w.must(give(ctx))
				w.done("its context has ended", held.Done())
				if keys := w.keys(c.keys); len(keys) != 0 {
					t.Errorf("%q is left", keys)
				}
			})
		}
	}
}

// A context that has ended before does not come to life again, and the deadline of one counts.
func TestGivenBackUnderAContextThatEnds(t *testing.T) {
	w := begin(t)
	s := w.session(w.admin)
	l, err := w.admin.Mutex("x").Lock(w.ctx, s)
	w.must(err)
	ctx, cancel := context.WithCancel(l.Held())
	cancel()
	err = l.Unlock(ctx)
	w.is(err, coord.ErrOutcomeUnknown, context.Canceled)
	w.until("it is removed in the background", func() bool { return len(w.keys("/lock/")) == 0 })

	n := &network{choose: func() fate { return passes }}
	client := w.intercepted(n.intercept)
	s = w.session(client)
	l, err = client.Mutex("x").Lock(w.ctx, s)
	w.must(err)
	n.choose = func() fate { return requestLost }
	ctx, cancel = context.WithTimeout(l.Held(), 100e6)
	defer cancel()
	if err = l.Unlock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a network: %v", err)
	}
}

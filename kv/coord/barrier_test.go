package coord_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// nothing is the result of what has only an error.
type nothing struct{}

// All that wait at a barrier go on when it is released, and none before.
func TestBarrier(t *testing.T) {
	w := begin(t)
	b := w.admin.Barrier("b")
	w.must(b.Wait(w.ctx))
	w.must(b.Release(w.ctx))
	w.must(b.Hold(w.ctx))
	w.must(b.Hold(w.ctx))
	var waiting []<-chan result[nothing]
	for range 3 {
		client := w.client()
		waiting = append(waiting, start(func() (nothing, error) {
			return nothing{}, client.Barrier("b").Wait(w.ctx)
		}))
	}
	ctx, cancel := context.WithCancel(w.ctx)
	given := start(func() (nothing, error) { return nothing{}, b.Wait(ctx) })
	cancel()
	if _, err := wait(w, "the call ends", given); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for _, c := range waiting {
		select {
		case r := <-c:
			t.Errorf("%+v before the release", r)
		default:
		}
	}
	w.must(w.client().Barrier("b").Release(w.ctx))
	for _, c := range waiting {
		_, err := wait(w, "it goes on", c)
		w.must(err)
	}
	w.must(b.Wait(w.ctx))
}

// Whichever clients hold and release at the same time, and whatever gets lost: the last one counts.
func TestBarrierOutcomes(t *testing.T) {
	w := begin(t)
	n := &network{choose: randomFates(7)}
	b := w.intercepted(n.intercept).Barrier("b")
	for range 20 {
		w.must(b.Hold(w.ctx))
		w.must(b.Release(w.ctx))
		n.arrive()
		w.must(w.admin.Barrier("b").Wait(w.ctx))
	}
}

// In each round participants begin together and end together.
func TestDoubleBarrier(t *testing.T) {
	w := begin(t)
	const count, rounds = 4, 5
	var inside, entered, left [rounds]atomic.Int32
	var all sync.WaitGroup
	for range count {
		client := w.client()
		s := w.session(client)
		d := client.DoubleBarrier("d", count)
		all.Go(func() {
			for round := range rounds {
				inside[round].Add(1)
				p, err := d.Enter(w.ctx, s)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside[round].Load(); n != count {
					t.Errorf("round %d began with %d", round, n)
				}
				entered[round].Add(1)
				left[round].Add(1)
				if err := p.Leave(w.ctx); err != nil {
					t.Error(err)
				}
				if n := left[round].Load(); n != count {
					t.Errorf("round %d ended when %d had left", round, n)
				}
			}
		})
	}
	all.Wait()
	if keys := w.keys("double-barrier/"); len(keys) != 0 {
		t.Errorf("keys %q are left", keys)
	}
}

// A participant that dies before the round does not count, one that dies in it has left, and one
// that comes too late waits for the next round.
func TestDoubleBarrierParticipantsDie(t *testing.T) {
	w := begin(t)
	const count = 2
	enter := func(s *coord.Session) <-chan result[*coord.Participation] {
		before := len(w.keys("/members/"))
		c := start(func() (*coord.Participation, error) {
			return s.Client().DoubleBarrier("d", count).Enter(w.ctx, s)
		})
		w.until("it has come", func() bool { return len(w.keys("/members/")) == before+1 })
		return c
	}
	dying := w.client()
	dead := enter(w.session(dying, coord.TTL(2e9)))
	w.must(dying.Close())
	_, err := wait(w, "the dead one is told", dead)
	w.is(err, coord.ErrSessionEnded)
	w.until("its key is gone", func() bool { return len(w.keys("/members/")) == 0 })

	a := enter(w.session(w.client()))
	dying = w.client()
	b := enter(w.session(dying, coord.TTL(2e9)))
	first, err := wait(w, "it has entered", a)
	w.must(err)
	_, err = wait(w, "it has entered", b)
	w.must(err)
	// Two more, which have to wait.
	c, d := enter(w.session(w.client())), enter(w.session(w.client()))
	leaving := start(func() (nothing, error) { return nothing{}, first.Leave(w.ctx) })
	w.until("it is leaving", func() bool { return len(w.keys("/members/")) == 3 })
	select {
	case r := <-c:
		t.Fatalf("%+v in a round that is not over", r)
	case r := <-leaving:
		t.Fatalf("%+v while another one is in the round", r)
	default:
	}
	w.must(dying.Close())
	_, err = wait(w, "the other one is dead", leaving)
	w.must(err)
	for _, e := range []<-chan result[*coord.Participation]{c, d} {
		_, err := wait(w, "the next round begins", e)
		w.must(err)
	}
}

func TestDoubleBarrierCancelled(t *testing.T) {
	w := begin(t)
	s := w.session(w.admin)
	d := w.admin.DoubleBarrier("d", 2)
	ctx, cancel := context.WithCancel(w.ctx)
	given := start(func() (*coord.Participation, error) { return d.Enter(ctx, s) })
	w.until("it has come", func() bool { return len(w.keys("/members/")) == 1 })
	cancel()
	if _, err := wait(w, "the call ends", given); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	w.until("its key is gone", func() bool { return len(w.keys("/members/")) == 0 })
	_, err := w.admin.DoubleBarrier("d", 0).Enter(w.ctx, s)
	w.is(err, coord.ErrInvalidArgument)
}

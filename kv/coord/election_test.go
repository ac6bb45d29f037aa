package coord_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Leaders follow each other in the order in which they campaign, and resign or die.
func TestElection(t *testing.T) {
	w := begin(t)
	e := w.admin.Election("e")
	leader, err := e.Leader(w.ctx)
	w.must(err)
	if leader.Exists() {
		t.Errorf("%+v leads", leader)
	}
	dying := w.client()
	first, err := dying.Election("e").Campaign(w.ctx, w.session(dying, coord.TTL(2e9)), []byte("a"))
	w.must(err)
	s := w.session(w.admin)
	second := start(func() (*coord.Leadership, error) { return e.Campaign(w.ctx, s, []byte("b")) })
	w.until("it campaigns", func() bool { return len(w.keys("election/")) == 2 })
	w.must(first.Proclaim(w.ctx, []byte("aa")))
	leader, err = e.Leader(w.ctx)
	w.must(err)
	if string(leader.Proposal) != "aa" || leader.Token != first.Token() || leader.Key != first.Key() {
		t.Errorf("%+v leads", leader)
	}
	w.must(dying.Close())
	next, err := wait(w, "it leads", second)
	w.must(err)
	w.is(first.Err(), coord.ErrSessionEnded)
	w.is(first.Proclaim(w.ctx, nil), coord.ErrSessionEnded)
	w.must(next.Resign(w.ctx))
	w.is(next.Err(), coord.ErrReleased)
	w.is(next.Resign(w.ctx), coord.ErrReleased)
}

// observed is one that observes an election, and has what it has seen asked for.
func observed(w *world, c *coord.Client) (next func() coord.Leader, stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	seen := make(chan result[coord.Leader])
	done := make(chan struct{})
	go func() {
		defer close(done)
		for leader, err := range c.Election("e").Observe(ctx) {
			select {
			case seen <- result[coord.Leader]{leader, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() coord.Leader {
		w.Helper()
		leader, err := wait(w, "a leader is observed", seen)
		w.must(err)
		return leader
	}, func() { cancel(); <-done }
}

// Every leader is seen, however short it leads, and also that there is none.
func TestObserveSeesEveryLeader(t *testing.T) {
	w := begin(t)
	next, stop := observed(w, w.client())
	defer stop()
	if leader := next(); leader.Exists() || leader.Gap {
		t.Errorf("first %+v", leader)
	}
	s := w.session(w.admin)
	var want, got []string
	for i := range 10 {
		a := fmt.Sprintf("%d", i)
		leadership, err := w.admin.Election("e").Campaign(w.ctx, s, []byte(a))
		w.must(err)
		w.must(leadership.Proclaim(w.ctx, []byte(a+"+")))
		w.must(leadership.Resign(w.ctx))
		want = append(want, a, a+"+", "nobody")
	}
	for range want {
		leader := next()
		if leader.Gap {
			t.Errorf("a gap before %+v", leader)
		}
		if !leader.Exists() {
			leader.Proposal = []byte("nobody")
		}
		got = append(got, string(leader.Proposal))
	}
	if !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

// One that observes is cut off, and meanwhile leaders change and the history of it is compacted: it
// goes on, and says that it may have missed some. Where the same one leads on it says nothing.
func TestObserveSurvivesCompaction(t *testing.T) {
	w := begin(t)
	p := w.proxied()
	next, stop := observed(w, w.clientAt(p.endpoints(), coord.AttemptTimeout(1e9)))
	defer stop()
	next()
	s := w.session(w.admin)
	campaign := func(proposal string) *coord.Leadership {
		leadership, err := w.admin.Election("e").Campaign(w.ctx, s, []byte(proposal))
		w.must(err)
		return leadership
	}
	first := campaign("a")
	next()
	p.cut()
	w.must(first.Resign(w.ctx))
	w.must(campaign("b").Resign(w.ctx))
	last := campaign("c")
	w.compact()
	p.mend()
	if leader := next(); string(leader.Proposal) != "c" || !leader.Gap {
		t.Errorf("%+v after the compaction", leader)
	}
	p.cut()
	other := w.session(w.client())
	waiting := start(func() (*coord.Leadership, error) {
		return w.admin.Election("e").Campaign(w.ctx, other, []byte("d"))
	})
	w.until("it campaigns", func() bool { return len(w.keys("election/")) == 2 })
	w.compact()
	p.mend()
	w.must(last.Resign(w.ctx))
	if leader := next(); string(leader.Proposal) != "d" || leader.Gap {
		t.Errorf("%+v; want d, and no gap, since c led all the time", leader)
	}
	_, err := wait(w, "it leads", waiting)
	w.must(err)
}

// An observation ends with its context.
func TestObserveEnds(t *testing.T) {
	w := begin(t)
	ctx, cancel := context.WithCancel(w.ctx)
	observe, stop := iter.Pull2(w.client().Election("e").Observe(ctx))
	defer stop()
	if _, err, ok := observe(); err != nil || !ok {
		t.Fatal(err, ok)
	}
	cancel()
	if _, err, ok := observe(); !errors.Is(err, context.Canceled) || !ok {
		t.Error(err, ok)
	}
	if _, _, ok := observe(); ok {
		t.Error("it goes on after its end")
	}
}

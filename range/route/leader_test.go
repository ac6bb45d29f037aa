package route

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

func TestHintsNeverGoBack(t *testing.T) {
	now := time.Now()
	a, b := &node{id: 1}, &node{id: 2}
	c := newLeaderHint()
	expect := func(step string, n *node, term uint64) {
		t.Helper()
		l := c.leader.Load()
		if l.node != n || l.term != term {
			t.Fatalf("%s: %v in term %d", step, l.node, l.term)
		}
	}
	c.learn(a, 5, nil, now)
	expect("first", a, 5)
	c.learn(b, 4, nil, now.Add(1))
	expect("lower term", a, 5)
	held := c.leader.Load()
	c.learn(a, 5, nil, now.Add(2))
	if c.leader.Load() != held {
		t.Fatal("old news changed the hint")
	}
	c.learn(b, 6, nil, now)
	expect("higher term", b, 6)

	// A dropped hint is not brought back by another node at once, but by the node itself, and by
	// others a while later.
	c.drop(c.leader.Load(), now)
	expect("dropped", nil, 6)
	c.learn(b, 6, a, now.Add(denial/2))
	expect("hearsay", nil, 6)
	c.learn(b, 6, a, now.Add(2*denial))
	expect("later", b, 6)
	c.drop(c.leader.Load(), now)
	c.learn(b, 6, b, now)
	expect("itself", b, 6)

	// All hints to a node are void once its connection broke, until they are learned anew.
	b.incarnation.Add(1)
	if c.leader.Load().usable() {
		t.Fatal("usable after the connection broke")
	}
	changed := c.changed()
	c.learn(b, 6, nil, now)
	select {
	case <-changed:
	default:
		t.Fatal("the waiters were not woken")
	}
	if !c.leader.Load().usable() {
		t.Fatal("not usable")
	}
	b.suspected.Store(true)
	if c.leader.Load().usable() {
		t.Fatal("usable while suspected")
	}
}

func TestWalkVisitsAllButSuspected(t *testing.T) {
	a, b, d := &node{id: 1}, &node{id: 2}, &node{id: 3}
	p := &Partition{voters: []*node{a, b, d}}
	c := newLeaderHint()
	b.suspected.Store(true)
	var seen []keys.NodeID
	for range 4 {
		seen = append(seen, c.nextReplica(p).id)
	}
	if seen[0] != 1 || seen[1] != 3 || seen[2] != 1 || seen[3] != 3 {
		t.Fatalf("%v", seen)
	}
	a.suspected.Store(true)
	d.suspected.Store(true)
	if n := c.nextReplica(p); n != nil {
		t.Fatalf("%v", n.id)
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond, Jitter: 0.5, AtOnce: 1}
	for n, want := range []time.Duration{0, 5, 10, 20, 40, 50, 50} {
		if got := b.delay(n, 0); got != want*time.Millisecond {
			t.Errorf("failure %d: %s", n, got)
		}
		if got := b.delay(n, 0.999999); got < want*time.Millisecond/2-time.Microsecond ||
			got > want*time.Millisecond {
			t.Errorf("failure %d with jitter: %s", n, got)
		}
	}
	if got := b.delay(1000, 0); got != b.Cap {
		t.Errorf("far out: %s", got)
	}
	for _, b := range []Backoff{routingBackoff, leaderlessBackoff, connectionBackoff} {
		if b.Cap > 100*time.Millisecond {
			t.Errorf("%s waits up to %s: longer than a look for a leader may", b.Name, b.Cap)
		}
	}
}

package route

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

func TestHintsNeverGoBack(t *testing.T) {
	now := time.Now()
	two := someNodes(t, 2)
	a, b := two[0], two[1]
	c := newLeaderHint()
	expect := func(step string, n *nodes.Node, term uint64) {
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
	before := *c.leader.Load()
	before.incarnation--
	c.leader.Store(&before)
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
	suspect(b)
	if c.leader.Load().usable() {
		t.Fatal("usable while suspected")
	}
}

func TestWalkVisitsAllButSuspected(t *testing.T) {
	p := &Partition{voters: someNodes(t, 3)}
	a, b, d := p.voters[0], p.voters[1], p.voters[2]
	c := newLeaderHint()
	suspect(b)
	var seen []keys.NodeID
	for range 4 {
		seen = append(seen, c.nextReplica(p).ID)
	}
	if seen[0] != 1 || seen[1] != 3 || seen[2] != 1 || seen[3] != 3 {
		t.Fatalf("%v", seen)
	}
	suspect(a)
	suspect(d)
	if n := c.nextReplica(p); n != nil {
		t.Fatalf("%v", n.ID)
	}
}

func TestBackoff(t *testing.T) {
	b := backoff.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond, Jitter: 0.5, AtOnce: 1}
	for n, want := range []time.Duration{0, 5, 10, 20, 40, 50, 50} {
		if got := b.Delay(n, 0); got != want*time.Millisecond {
			t.Errorf("failure %d: %s", n, got)
		}
		if got := b.Delay(n, 0.999999); got < want*time.Millisecond/2-time.Microsecond ||
			got > want*time.Millisecond {
			t.Errorf("failure %d with jitter: %s", n, got)
		}
	}
	if got := b.Delay(1000, 0); got != b.Cap {
		t.Errorf("far out: %s", got)
	}
	for _, b := range []backoff.Backoff{routingBackoff, leaderlessBackoff, connectionBackoff} {
		if b.Cap > 100*time.Millisecond {
			t.Errorf("%s waits up to %s: longer than a look for a leader may", b.Name, b.Cap)
		}
	}
}

package table

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
)

func TestHintsNeverGoBack(t *testing.T) {
	now := time.Now()
	two := someNodes(t, 2)
	a, b := two[0], two[1]
	c := NewHints()
	expect := func(step string, n *nodes.Node, term uint64) {
		t.Helper()
		l := c.Current()
		if l.Node != n || l.Term != term {
			t.Fatalf("%s: %v in term %d", step, l.Node, l.Term)
		}
	}
	c.Learn(a, 5, nil, now)
	expect("first", a, 5)
	c.Learn(b, 4, nil, now.Add(1))
	expect("lower term", a, 5)
	held := c.Current()
	c.Learn(a, 5, nil, now.Add(2))
	if c.Current() != held {
		t.Fatal("old news changed the hint")
	}
	c.Learn(b, 6, nil, now)
	expect("higher term", b, 6)

	// A dropped hint is not brought back by another node at once, but by the node itself, and by
	// others a while later.
	c.Drop(c.Current(), now)
	expect("dropped", nil, 6)
	c.Learn(b, 6, a, now.Add(denial/2))
	expect("hearsay", nil, 6)
	c.Learn(b, 6, a, now.Add(2*denial))
	expect("later", b, 6)
	c.Drop(c.Current(), now)
	c.Learn(b, 6, b, now)
	expect("itself", b, 6)

	// All hints to a node are void once its connection broke, until they are learned anew.
	before := *c.Current()
	before.Incarnation--
	c.current.Store(&before)
	if c.Current().Usable() {
		t.Fatal("usable after the connection broke")
	}
	changed := c.Changed()
	c.Learn(b, 6, nil, now)
	select {
	case <-changed:
	default:
		t.Fatal("the waiters were not woken")
	}
	if !c.Current().Usable() {
		t.Fatal("not usable")
	}
	suspect(b)
	if c.Current().Usable() {
		t.Fatal("usable while suspected")
	}
}

func TestWalkVisitsAllButSuspected(t *testing.T) {
	p := &Partition{Voters: someNodes(t, 3)}
	a, b, d := p.Voters[0], p.Voters[1], p.Voters[2]
	c := NewHints()
	suspect(b)
	var seen []keys.NodeID
	for range 4 {
		seen = append(seen, c.NextReplica(p.Voters).ID)
	}
	if seen[0] != 1 || seen[1] != 3 || seen[2] != 1 || seen[3] != 3 {
		t.Fatalf("%v", seen)
	}
	suspect(a)
	suspect(d)
	if n := c.NextReplica(p.Voters); n != nil {
		t.Fatalf("%v", n.ID)
	}
}

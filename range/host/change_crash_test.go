package host

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestASnapshotOvertakesAChange: a change that a slow follower is still applying when it accepts a
// snapshot that has it, and later ones, is not told to Raft on top of that.
func TestASnapshotOvertakesAChange(t *testing.T) {
	for _, removed := range []bool{true, false} {
		t.Run(fmt.Sprint("removed ", removed), func(t *testing.T) { overtakes(t, removed) })
	}
}

func overtakes(t *testing.T, removed bool) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		defer m.close()
		n, term := m.awaitLeader(moved)
		g := n.host.Group(moved)
		var f keys.ReplicaID = 3
		if g.Self() == 3 {
			f = 2
		}
		fm := m.machines[f]
		fm.mu.Lock()
		gate := make(chan struct{})
		fm.gate = gate
		fm.mu.Unlock()
		if !m.step(with(g.Configuration(), 4, 4, group.Learner)) {
			t.Fatal("no step")
		}
		time.Sleep(300 * time.Millisecond) // virtual
		synctest.Wait()
		fg := m.hosts[uint64(f)].host.Group(moved)
		m.net.isolate(uint64(f), true)
		if removed {
			if !m.step(with(g.Configuration(), 4, 0, 0)) {
				t.Fatal("no step")
			}
		} else {
			m.create(4, 4, nil)
			m.await("learner", func() bool {
				c := m.machines[4].read().Configuration
				return c.Role(4) != 0
			})
			joint := with(g.Configuration(), 4, 4, group.Incoming)
			if !m.step(joint) {
				t.Fatal("no step")
			}
			if !m.step(joint.Left()) {
				t.Fatal("no step")
			}
		}
		_, before, _ := g.storage.Extent()
		big := strings.Repeat("x", 1000)
		for i := range 200 {
			if err := g.Propose(term, []byte(fmt.Sprint(i, big))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // virtual
		}
		synctest.Wait()
		for id := range m.at {
			m.machines[id].flush()
		}
		g.do(func(g *Group) { clear(g.followers.kept) })
		m.await("truncation", func() bool {
			g.Propose(term, []byte("x"+big))
			m.machines[g.Self()].flush()
			first, _, _ := g.storage.Extent()
			return first > before+1
		})
		m.net.isolate(uint64(f), false)
		m.await("the configuration of the snapshot", func() bool {
			g.Propose(term, []byte("y"))
			fg.inbox.mu.Lock()
			defer fg.inbox.mu.Unlock()
			return fg.inbox.installing > 0
		})
		close(gate)
		time.Sleep(2 * time.Second) // virtual
		synctest.Wait()
		if c := fm.read().Configuration; !c.Equal(fg.Configuration()) {
			t.Errorf("the state has %s, Raft %s", &c, fg.Configuration())
		}
		if fg.Failed() != nil {
			t.Error("failed")
		}
	})
}

// TestAMoveOutlivesItsLeader: when the replica that went is gone, two of the three that are left
// elect one, also if the leader is lost right then, and if the others have lost power, with what
// their states had not written.
func TestAMoveOutlivesItsLeader(t *testing.T) {
	for _, pause := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond,
		10 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) { removedEarly(t, pause) })
	}
}

// fence appends an entry behind a change, and waits until it is applied: before that a leader
// reports no change, and nothing is destroyed for it.
func fence(t *testing.T, m *moving, g *Group, term uint64) {
	t.Helper()
	if err := g.Propose(term, []byte("fence")); err != nil {
		t.Fatal(err)
	}
	m.await("the fence", func() bool {
		return slices.Contains(m.machines[g.Self()].read().Values, "fence")
	})
}

func removedEarly(t *testing.T, pause time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		defer m.close()
		n, term := m.awaitLeader(moved)
		g := n.host.Group(moved)
		out := keys.ReplicaID(3)
		if g.Self() == 3 {
			out = 2
		}
		if !m.step(with(g.Configuration(), 4, 4, group.Learner)) {
			t.Fatal("no step")
		}
		m.create(4, 4, nil)
		m.await("learner", func() bool {
			c := m.machines[4].read().Configuration
			return c.Role(4) != 0
		})
		time.Sleep(time.Second) // virtual
		joint := with(g.Configuration(), 4, 4, group.Incoming)
		joint = with(&joint, out, 0, group.Outgoing)
		if !m.step(joint) {
			t.Fatal("no step")
		}
		time.Sleep(time.Second) // virtual
		if !m.step(joint.Left()) {
			t.Fatal("no step")
		}
		fence(t, m, g, term)
		m.remove(g.Configuration()) // as the node does that the table names out
		time.Sleep(pause)           // virtual
		lost := g.Self()
		m.stop(uint64(lost))
		if pause == 10*time.Second { // and the others lose power, long after the move
			for id, at := range m.at {
				if id != lost {
					m.restart(at)
				}
			}
		}
		for range 60 {
			m.wake()
			time.Sleep(time.Second) // virtual
			if x, _ := m.leader(moved); x != nil {
				m.start(uint64(lost))
				return
			}
		}
		for id, at := range m.at {
			if h := m.hosts[at].host; h != nil {
				c := m.machines[id].read().Configuration
				t.Logf("replica %s: %s", id, &c)
			}
		}
		t.Errorf("two of three voters run, and for a minute none leads")
		m.start(uint64(lost))
	})
}

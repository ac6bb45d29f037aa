package host

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestAloneByAnOldState: a replica that was alone, and is one of two now, keeps what it promised
// the other also when its state has rolled back to when it was alone. One that is alone, whatever
// its state lacks, waits for no other.
func TestAloneByAnOldState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		defer m.close()
		m.awaitLeader(moved)
		m.remove(&group.Configuration{})
		alone := group.Founded(map[keys.ReplicaID]uint64{7: 1})
		m.machines[7] = &movedMachine{state: movedState{Configuration: alone},
			durable: movedState{Configuration: alone}}
		m.create(7, 1, []keys.ReplicaID{7})
		withheld := func() bool {
			m.restart(1)
			return m.hosts[1].host.Group(moved).restarted
		}
		lead := func() *Group {
			t.Helper()
			g := m.hosts[1].host.Group(moved)
			g.Campaign()
			m.awaitLeader(moved)
			return g
		}
		g := lead()
		if err := g.Propose(leads(g), []byte("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // virtual
		if withheld() {
			t.Error("a replica that is alone waits")
		}
		g = lead()
		for _, next := range []group.Role{group.Learner, group.Incoming, group.Voter} {
			if next == group.Incoming {
				m.create(8, 4, nil)
				m.await("learner", func() bool {
					c := m.machines[8].read().Configuration
					return c.Role(8) != 0
				})
			}
			if !m.step(with(g.Configuration(), 8, 4, next)) {
				t.Fatal("no step")
			}
		}
		if !withheld() {
			t.Error("one of two may vote at once, by what its state has forgotten")
		}
	})
}

// leads is the term in which a group leads.
func leads(g *Group) uint64 {
	_, term := g.Leader()
	return term
}

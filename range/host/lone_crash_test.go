package host

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// grow adds voters to a group, on the hosts of the same numbers, in one change.
func (m *moving) grow(ids ...keys.ReplicaID) {
	m.t.Helper()
	must := func(next group.Configuration) {
		m.t.Helper()
		if !m.step(next) {
			m.t.Fatalf("no step to %s", &next)
		}
	}
	n, _ := m.awaitLeader(moved)
	g := n.host.Group(moved)
	for _, id := range ids {
		must(with(g.Configuration(), id, uint64(id), group.Learner))
		m.create(id, uint64(id), nil)
		m.await("the learner", func() bool { return m.filled(id, g.Applied()) })
	}
	joint := *g.Configuration()
	for _, id := range ids {
		joint = with(&joint, id, 0, group.Incoming)
	}
	must(joint)
	must(joint.Left())
}

// lead has a replica lead, and waits until it holds the lease.
func (m *moving) lead(id keys.ReplicaID) {
	m.t.Helper()
	m.await(fmt.Sprintf("the lead of replica %s", id), func() bool {
		n, term := m.awake()
		g := n.host.Group(moved)
		if g.Self() != id {
			g.TransferLeader(term, id)
		}
		return g.Self() == id
	})
}

// TestAFormerOnlyVoterKeepsItsPromise: the state of the replica with which the group was founded
// rolls back to when it was alone. It has promised the leader of today its faith all the same, so
// it votes for no other one right after the restart.
func TestAFormerOnlyVoterKeepsItsPromise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMovingOf(t, 1)
		defer m.close()
		m.grow(2, 3)
		m.lead(2)
		// Replica 3 hears nothing for so long that it owes nothing; replica 2 leads by the answers of
		// 1.
		m.net.isolate(3, true)
		for range 30 {
			m.hosts[2].host.Group(moved).Wake()
			time.Sleep(100 * time.Millisecond) // virtual
		}
		m.net.isolate(3, false)
		m.net.isolate(2, true)
		m.restart(1)
		for range 100 {
			m.wake()
			m.hosts[3].host.Group(moved).Campaign()
			synctest.Wait()
			m.leader(moved)                   // fails if two hold the lease
			time.Sleep(20 * time.Millisecond) // virtual
		}
		if n, _ := m.awake(); n.id == 2 {
			t.Error("the one that is cut off still leads")
		}
	})
}

// TestAFormerOnlyVoterDoesNotLeadAlone: the group has moved on to other replicas. The one with
// which it was founded is started again, with a state from when it was alone, before it hears that
// it was removed. It does not lead by that.
func TestAFormerOnlyVoterDoesNotLeadAlone(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprint("fenced ", fenced), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMovingOf(t, 1)
				defer m.close()
				m.grow(2)
				m.lead(2)
				g := m.hosts[2].host.Group(moved)
				joint := with(g.Configuration(), 1, 0, group.Outgoing)
				if !m.step(joint) || !m.step(joint.Left()) {
					t.Fatal("no step")
				}
				if fenced && !m.fenced("fence") {
					t.Fatal("no fence")
				}
				m.net.isolate(1, true)
				m.restart(1)
				if c := m.machines[1].read().Configuration; len(c.Members) != 1 {
					t.Fatalf("the state has not rolled back: %s", &c)
				}
				old := m.hosts[1].host.Group(moved)
				for range 200 {
					old.Wake()
					old.Campaign()
					synctest.Wait()
					if _, leads := old.Lease(); leads {
						t.Fatal("it leads alone")
					}
					time.Sleep(50 * time.Millisecond) // virtual
				}
				if n, _ := m.awake(); n.id != 2 || !m.fenced("afterwards") {
					t.Error("the only voter of today does not go on alone")
				}
			})
		})
	}
}

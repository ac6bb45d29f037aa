package host

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// finishedMachine is one that another one has brought further and taken over: it applies nothing
// any more.
type finishedMachine struct{ *movedMachine }

func (m finishedMachine) Apply(entries []group.Entry) error {
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if at, _ := m.Applied(); at >= entries[len(entries)-1].Index {
		return nil
	}
	return m.movedMachine.Apply(entries)
}

// A group whose state machine was brought further beside it, over changes of the configuration,
// does not fail when it comes to those.
func TestMachineAheadOfItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		defer m.close()
		n, term := m.awaitLeader(moved)
		leader := n.host.Group(moved).Self()
		behind := leader%3 + 1
		at := m.hosts[m.at[behind]].host
		identity := at.Group(moved).Identity()
		at.Remove(at.Group(moved))
		gate := make(chan struct{})
		m.machines[behind].gate = gate
		g, err := at.Open(GroupConfig{Identity: identity,
			Open: func(*Group) (group.StateMachine, error) {
				return finishedMachine{m.machines[behind]}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		c := *n.host.Group(moved).Configuration()
		for _, id := range []uint64{4, 5} {
			next := with(&c, keys.ReplicaID(id), id, group.Learner)
			if !m.step(next) {
				t.Fatalf("no step to %s", &next)
			}
			c = next
		}
		if err := n.host.Group(moved).Propose(term, []byte("last")); err != nil {
			t.Fatal(err)
		}
		m.await("the last entry", func() bool {
			return slices.Contains(m.machines[leader].read().Values, "last")
		})
		x := m.machines[behind]
		state := m.machines[leader].read()
		x.mu.Lock()
		x.state, x.gate = state, nil
		x.mu.Unlock()
		close(gate)
		m.await("the group has come to the end of its log", func() bool {
			return g.Applied() >= state.Index || g.Failed() != nil
		})
		if err := g.Failed(); err != nil {
			t.Error(err)
		}
	})
}

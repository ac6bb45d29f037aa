package host

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// moving is a cluster of more hosts than its group has replicas.
type moving struct {
	*cluster
	machines map[keys.ReplicaID]*movedMachine
	at       map[keys.ReplicaID]uint64
	next     keys.ReplicaID
}

const moved = keys.PartitionID(5)

func newMoving(t *testing.T) *moving { return newMovingOf(t, 3) }

// newMovingOf is one whose group is founded with so many replicas.
func newMovingOf(t *testing.T, replicas int) *moving {
	c := newCluster(t)
	m := &moving{cluster: c, machines: map[keys.ReplicaID]*movedMachine{},
		at: map[keys.ReplicaID]uint64{}, next: 4}
	for id := uint64(4); id <= 6; id++ {
		c.hosts[id] = &node{id: id, fs: vfs.NewCrashableMem(),
			machines: map[keys.PartitionID]*machine{}}
		c.start(id)
	}
	c.reopen = func(n *node, identity raftlog.Identity) { m.openMoved(identity, n.id, false) }
	hosts := map[keys.ReplicaID]uint64{}
	var voters []keys.ReplicaID
	for id := keys.ReplicaID(1); id <= keys.ReplicaID(replicas); id++ {
		hosts[id], voters = uint64(id), append(voters, id)
	}
	founded := group.Founded(hosts)
	for _, id := range voters {
		m.machines[id] = &movedMachine{state: movedState{Configuration: founded},
			durable: movedState{Configuration: founded}}
		m.create(id, uint64(id), voters)
	}
	c.hosts[1].host.Group(moved).Campaign()
	return m
}

// create creates a replica on a host; without voters it is to be filled.
func (m *moving) create(id keys.ReplicaID, host uint64, voters []keys.ReplicaID) {
	m.t.Helper()
	if m.machines[id] == nil {
		m.machines[id] = &movedMachine{}
	}
	m.at[id] = host
	identity := raftlog.Identity{Group: moved, Replica: id, Voters: voters}
	if err := m.hosts[host].host.Log().Create(identity); err != nil {
		m.t.Fatal(err)
	}
	m.openMoved(identity, host, true)
}

func (m *moving) openMoved(identity raftlog.Identity, host uint64, fresh bool) {
	m.t.Helper()
	if _, err := m.hosts[host].host.Open(GroupConfig{Identity: identity, New: fresh,
		Open: func(*Group) (group.StateMachine, error) { return m.machines[identity.Replica], nil },
	}); err != nil {
		m.t.Fatal(err)
	}
}

// restart ends a host, with what was not synced, and starts it again.
func (m *moving) restart(host uint64) {
	m.t.Helper()
	n := m.hosts[host]
	clone := n.fs.CrashClone(vfs.CrashCloneCfg{})
	m.stop(host)
	n.fs = clone
	for id, at := range m.at {
		if at == host {
			m.machines[id].crash()
		}
	}
	m.start(host)
}

// step proposes a change at the leader, and waits until the leader has applied it; false if there
// is no such leader, or it lost its lead over it.
func (m *moving) step(next group.Configuration) bool {
	m.t.Helper()
	n, term := m.leader(moved)
	if n == nil {
		return false
	}
	g := n.host.Group(moved)
	data, err := json.Marshal(next)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := g.Configuration().CanBecome(&next); err != nil {
		m.t.Fatal(err)
	}
	if g.ProposeChange(term, append([]byte(changePrefix), data...), next) != nil {
		return false
	}
	for range 100 {
		synctest.Wait()
		if g.Configuration().Equal(&next) {
			return true
		}
		if _, now := g.Leader(); now != term || n.host == nil {
			return false
		}
		time.Sleep(20 * time.Millisecond) // virtual
	}
	return false
}

// with is a configuration with the role of a replica changed; 0 takes it out.
func with(c *group.Configuration, id keys.ReplicaID, host uint64, role group.Role,
) group.Configuration {
	next := group.Configuration{Changed: true}
	found := false
	for _, m := range c.Members {
		if m.Replica == id {
			found = true
			if m.Role = role; role == 0 {
				continue
			}
		}
		next.Members = append(next.Members, m)
	}
	if !found {
		next.Members = append(next.Members, group.Member{Replica: id, Host: host, Role: role})
	}
	return next
}

// remove removes what the configuration does not have any more.
func (m *moving) remove(c *group.Configuration) {
	m.t.Helper()
	for id, at := range m.at {
		n := m.hosts[at]
		if c.Role(id) != 0 || n.host == nil {
			continue
		}
		if g := n.host.Group(moved); g != nil && g.Self() == id {
			n.host.Remove(g)
			if err := n.host.Log().Remove(g.Identity()); err != nil {
				m.t.Fatal(err)
			}
		}
		delete(m.at, id)
	}
}

// TestAReplicaMoves: it is added as a learner, filled, promoted in place of another, which is
// removed. Writers do not notice: the leader's lease stands all the time.
func TestAReplicaMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		defer m.close()
		n, term := m.awaitLeader(moved)
		g := n.host.Group(moved)
		leads := func() {
			t.Helper()
			if now, ok := g.Lease(); !ok || now != term {
				t.Errorf("the lease of term %d does not stand", term)
			}
		}
		propose := func(value string) {
			t.Helper()
			if err := g.Propose(term, []byte(value)); err != nil {
				t.Fatal(err)
			}
			m.await(value, func() bool {
				return slices.Contains(m.machines[g.Self()].read().Values, value)
			})
			leads()
		}
		propose("before")
		var out keys.ReplicaID = 3
		if g.Self() == 3 {
			out = 2
		}
		step := func(next group.Configuration) {
			t.Helper()
			if !m.step(next) {
				t.Fatalf("no step to %s", &next)
			}
			leads()
		}
		step(with(g.Configuration(), 4, 4, group.Learner))
		propose("learner")
		m.create(4, 4, nil)
		m.await("the learner to be filled", func() bool {
			return slices.Contains(m.machines[4].read().Values, "learner")
		})
		joint := with(g.Configuration(), 4, 4, group.Incoming)
		joint = with(&joint, out, 0, group.Outgoing)
		step(joint)
		propose("joint")
		step(joint.Left())
		propose("after")
		m.remove(g.Configuration())
		m.await("all to have it", func() bool {
			for id := range m.at {
				if !slices.Contains(m.machines[id].read().Values, "after") {
					return false
				}
			}
			return len(m.at) == 3
		})
		if _, now := g.Leader(); now != term {
			t.Errorf("the term was %d, and is %d", term, now)
		}
		// The one that was removed does not come back under its id.
		if err := m.hosts[uint64(out)].host.Log().Create(raftlog.Identity{Group: moved,
			Replica: out}); err == nil {
			t.Error("a replica that was removed was created again")
		}
	})
}

// TestReplicasMoveAtRandom: replicas come and go while hosts crash, with a state that rolls back,
// and are cut off. At most one holds the lease, all apply the same, and nothing that was applied by
// a leader is lost.
func TestReplicasMoveAtRandom(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		for _, replicas := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d of %d", seed, replicas), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { moveAtRandom(t, seed, replicas) })
			})
		}
	}
}

// moveAtRandom begins with a number of replicas; with one it goes down to one again and again.
func moveAtRandom(t *testing.T, seed uint64, replicas int) {
	m := newMovingOf(t, replicas)
	defer m.close()
	m.awaitLeader(moved)
	random := rand.New(rand.NewPCG(seed, 1))
	var acknowledged []string
	isolated := map[uint64]bool{}
	steps := 0
	for i := range 300 {
		if random.IntN(3) == 0 {
			m.wake()
		}
		synctest.Wait()
		switch random.IntN(12) {
		case 0, 1, 2, 3: // a write
			if n, term := m.leader(moved); n != nil {
				value := fmt.Sprintf("v%d", i)
				g := n.host.Group(moved)
				if g.Propose(term, []byte(value)) == nil {
					time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) // virtual
					synctest.Wait()
					if slices.Contains(m.machines[g.Self()].read().Values, value) {
						acknowledged = append(acknowledged, value)
					}
				}
			}
		case 4, 5, 6: // a step
			if n, _ := m.leader(moved); n != nil {
				if random.IntN(4) == 0 {
					m.handOver(random, n)
				} else if next, ok := m.randomStep(random, n, replicas); ok && m.step(next) {
					steps++
					if m.fenced(fmt.Sprintf("fence%d", i)) {
						m.follow()
					}
				}
			}
		case 7: // a crash
			host := uint64(1 + random.IntN(6))
			m.restart(host)
		case 8: // cut off, or back
			host := uint64(1 + random.IntN(6))
			isolated[host] = !isolated[host] && len(isolated) < 2
			m.net.isolate(host, isolated[host])
			if !isolated[host] {
				delete(isolated, host)
			}
		case 9:
			for id := range m.at {
				if random.IntN(2) == 0 {
					m.machines[id].flush()
				}
			}
		default:
			time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond) // virtual
		}
		m.leader(moved) // checks that there is one at most
		m.checkSame()
	}
	for host := range isolated {
		m.net.isolate(host, false)
	}
	n, term := m.awake()
	g := n.host.Group(moved)
	if g.Configuration().Joint() {
		m.await("the end of the joint configuration", func() bool {
			n, term = m.awake()
			g = n.host.Group(moved)
			return !g.Configuration().Joint() || m.step(g.Configuration().Left())
		})
	}
	m.await("an entry behind the last change", func() bool { m.awake(); return m.fenced("fence") })
	m.follow()
	n, term = m.awake()
	g = n.host.Group(moved)
	if err := g.Propose(term, []byte("end")); err != nil {
		t.Fatal(err)
	}
	m.await("all to have all", func() bool {
		for _, member := range g.Configuration().Members {
			if !slices.Contains(m.machines[member.Replica].read().Values, "end") {
				return false
			}
		}
		return true
	})
	m.checkSame()
	values := m.machines[g.Self()].read().Values
	for _, v := range acknowledged {
		if !slices.Contains(values, v) {
			t.Errorf("%s was applied by a leader, and is lost", v)
		}
	}
	t.Logf("%d steps, %d acknowledged writes", steps, len(acknowledged))
}

// fenced appends an entry, and says whether the leader has applied it: only then do nodes hear of
// the change before it.
func (m *moving) fenced(value string) bool {
	n, term := m.leader(moved)
	if n == nil {
		return false
	}
	g := n.host.Group(moved)
	if g.Propose(term, []byte(value)) != nil {
		return false
	}
	for range 50 {
		synctest.Wait()
		if slices.Contains(m.machines[g.Self()].read().Values, value) {
			return true
		}
		time.Sleep(20 * time.Millisecond) // virtual
	}
	return false
}

// follow does what a node does when it hears of a configuration: it creates what is listed, and
// removes what is not.
func (m *moving) follow() {
	var newest *group.Configuration
	var index uint64
	for _, n := range m.hosts {
		if g := n.host.Group(moved); g != nil {
			if s := m.machines[g.Self()].read(); s.Index >= index {
				newest, index = &s.Configuration, s.Index
			}
		}
	}
	if newest == nil {
		return
	}
	m.remove(newest)
	for _, member := range newest.Members {
		if m.at[member.Replica] == 0 && m.hosts[member.Host].host.Group(moved) == nil {
			m.create(member.Replica, member.Host, nil)
		}
	}
}

// filled says whether a replica has nearly everything.
func (m *moving) filled(id keys.ReplicaID, applied uint64) bool {
	if m.machines[id] == nil {
		return false
	}
	s := m.machines[id].read()
	return s.Configuration.Role(id) != 0 && s.Index+5 > applied
}

// wake wakes the group, as requests do.
func (m *moving) wake() {
	for _, n := range m.hosts {
		if n.host == nil {
			continue
		}
		if g := n.host.Group(moved); g != nil {
			g.Wake()
		}
	}
}

// awake wakes the group and waits for its leader.
func (m *moving) awake() (leader *node, term uint64) {
	m.t.Helper()
	m.await("a leader", func() bool {
		m.wake()
		leader, term = m.leader(moved)
		return leader != nil
	})
	return leader, term
}

// handOver has another voter lead.
func (m *moving) handOver(random *rand.Rand, n *node) {
	g := n.host.Group(moved)
	to := g.Configuration().Members[random.IntN(len(g.Configuration().Members))].Replica
	_, term := g.Leader()
	g.TransferLeader(term, to)
}

// randomStep is a legal step that leaves the leader in, and at least so many voters, or two with
// three.
func (m *moving) randomStep(random *rand.Rand, n *node, least int) (next group.Configuration,
	ok bool) {
	g := n.host.Group(moved)
	now := g.Configuration()
	if now.Joint() {
		return now.Left(), true
	}
	var learners, voters []keys.ReplicaID
	used := map[uint64]bool{}
	for _, member := range now.Members {
		used[member.Host] = true
		switch {
		case member.Role == group.Learner:
			learners = append(learners, member.Replica)
		case member.Replica != g.Self():
			voters = append(voters, member.Replica)
		}
	}
	switch random.IntN(4) {
	case 0: // one learner more
		for host := uint64(1); host <= 6; host++ {
			if !used[host] && m.hosts[host].host.Group(moved) == nil && len(now.Members) < 5 {
				m.next++
				return with(now, m.next, host, group.Learner), true
			}
		}
	case 1: // one less
		if len(learners) > 0 {
			return with(now, learners[random.IntN(len(learners))], 0, 0), true
		}
	default: // learners that have everything become voters, others go
		filled := false
		next = *now
		for _, id := range learners {
			if m.filled(id, g.Applied()) {
				next, filled = with(&next, id, 0, group.Incoming), true
			}
		}
		if len(voters) > min(least-1, 1) && random.IntN(3) > 0 {
			role := group.Outgoing
			if random.IntN(3) == 0 {
				role = group.Demoted
			}
			next, filled = with(&next, voters[random.IntN(len(voters))], 0, role), true
		}
		return next, filled
	}
	return next, false
}

// checkSame sees to it that all have applied the same, as far as they have.
func (m *moving) checkSame() {
	m.t.Helper()
	var longest movedState
	for id := range m.at {
		if s := m.machines[id].read(); s.Index > longest.Index {
			longest = s
		}
	}
	for id := range m.at {
		s := m.machines[id].read()
		if len(s.Values) > len(longest.Values) ||
			!slices.Equal(s.Values, longest.Values[:len(s.Values)]) {
			m.t.Fatalf("replica %s has applied %v, another %v", id, s.Values, longest.Values)
		}
	}
}

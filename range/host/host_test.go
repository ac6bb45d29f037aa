package host

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

func simulate(t *testing.T, test func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		defer c.close()
		test(t, c)
	})
}

// readIndex waits for the answer, in virtual time.
func readIndex(g *Group) error {
	answer := make(chan error, 1)
	g.ReadIndex(func(err error) { answer <- err })
	return <-answer
}

func TestReplicates(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100, 101, 102)
		for i := range 10 {
			for _, id := range []keys.PartitionID{100, 101, 102} {
				c.propose(id, fmt.Sprintf("%s-%d", id, i))
			}
		}
		for _, n := range c.hosts {
			for id, m := range n.machines {
				if _, values, _ := m.state(); len(values) != 10 ||
					!strings.HasPrefix(values[0], id.String()+"-") {
					t.Fatalf("host %d, group %s applied %v", n.id, id, values)
				}
			}
		}
	})
}

// A machine that stood still together with its monotonic clock: the lease that it had before is
// worth nothing, from the moment at which the wall clock shows it.
func TestLeaseOfASuspendedMachine(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		n, term := c.awaitLeader(100)
		g := n.host.Group(100)
		expect := func(when string, stands bool) {
			t.Helper()
			_, ok := g.Lease()
			if left := g.LeaseLeft(); ok != stands || (left > 0) != stands {
				t.Errorf("%s: the lease stands %v, for %v", when, ok, left)
			}
		}
		clocks := n.host.Clocks()
		clocks.Look()
		expect("before", true)
		n.wall.Store(int64(time.Second))
		expect("suspended", false)
		if !clocks.Look().Jumped {
			t.Error("the jump was not noticed")
		}
		expect("noticed", false)
		for _, other := range c.hosts {
			other.wall.Store(int64(time.Second)) // it was right: they confirm it
		}
		c.await("the clock to be believed", func() bool { return clocks.Look().AfterJump })
		expect("believed", false)
		c.await("another lease", func() bool { _, ok := g.Lease(); return ok })
		expect("later", true)
		if _, now := c.leader(100); now != term {
			t.Errorf("term %d after %d", now, term)
		}
	})
}

func TestLeaderIsolated(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		old, term := c.awaitLeader(100)
		c.net.isolate(old.id, true)
		// What the old leader proposes now is lost.
		if err := old.host.Group(100).Propose(term, []byte("lost")); err != nil {
			t.Fatal(err)
		}
		c.await(
			"another leader",
			func() bool { n, _ := c.leader(100); return n != nil && n != old },
		)
		n, newTerm := c.leader(100)
		if newTerm <= term {
			t.Fatalf("term %d after %d", newTerm, term)
		}
		if err := n.host.Group(100).Propose(newTerm, []byte("b")); err != nil {
			t.Fatal(err)
		}
		if err := readIndex(old.host.Group(100)); err == nil {
			t.Fatal("a cut-off leader allowed a read")
		}
		c.net.isolate(old.id, false)
		c.await("the old leader to follow", func() bool { return c.everywhere(100, "b") })
		for _, n := range c.hosts {
			if _, values, _ := n.machines[100].state(); slices.Contains(values, "lost") {
				t.Fatalf("host %d applied what was never committed: %v", n.id, values)
			}
		}
	})
}

func TestCrashOfAll(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100, 101)
		c.propose(100, "a")
		c.propose(101, "b")
		for id := range c.hosts {
			c.crash(id)
		}
		for _, n := range c.hosts {
			// The state of one host is gone back: the log replays it.
			if n.id == 1 {
				n.machines = map[keys.PartitionID]*machine{}
			}
			c.start(n.id)
		}
		for _, n := range c.hosts {
			n.host.Groups(func(g *Group) { g.Wake() })
		}
		c.propose(100, "c")
		c.propose(101, "d")
		for _, n := range c.hosts {
			if _, values, _ := n.machines[100].state(); !slices.Equal(values, []string{"a", "c"}) {
				t.Fatalf("host %d: %v", n.id, values)
			}
		}
	})
}

func TestRestartedHostNeitherVotesNorCampaigns(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		leader, term := c.awaitLeader(100)
		follower := leader.id%3 + 1
		other := follower%3 + 1
		// The leader's last heartbeats reach the follower, which restarts, and the third one has
		// been deaf for long.
		c.net.isolate(other, true)
		time.Sleep(3 * time.Second)
		c.crash(follower)
		c.start(follower)
		c.net.isolate(other, false)
		c.net.isolate(leader.id, true)
		c.hosts[follower].host.Group(100).Campaign()
		c.hosts[other].host.Group(100).Campaign()
		// leader() fails the test if two hold the lease.
		c.await(
			"the next leader",
			func() bool { n, t := c.leader(100); return n != nil && t > term },
		)
	})
}

func TestSnapshotForALaggard(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		leader, _ := c.awaitLeader(100)
		away := leader.id%3 + 1
		c.crash(away)
		big := strings.Repeat("x", 1000)
		for i := range 200 {
			c.propose(100, fmt.Sprint(i, big))
		}
		c.await("the log to be truncated", func() bool {
			first, _, _ := leader.host.Group(100).storage.Extent()
			return first > 50
		})
		c.start(away)
		c.propose(100, "last")
		_, values, _ := c.hosts[away].machines[100].state()
		_, want, _ := leader.machines[100].state()
		if !slices.Equal(values, want) {
			t.Fatalf("%d values, want %d", len(values), len(want))
		}
		if n := c.hosts[away].host.Group(100).replacing.Load(); n != 0 {
			t.Errorf("%d snapshots wait for the log for ever, and keep it from being truncated", n)
		}
		// And it survives the next crash, from its reset log.
		c.crash(away)
		c.start(away)
		c.propose(100, "after")
	})
}

// The append that resets the log to a snapshot runs behind the installation, on another goroutine:
// a truncation that comes in between would find its entries gone from the disk, and memory that
// still lists them.
func TestNoTruncationWhileASnapshotReplacesTheLog(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		replaced := c.hosts[1].host.Group(100)
		replaced.replacing.Add(1) // as between the installation and its append
		big := strings.Repeat("x", 1000)
		for i := range 200 {
			c.propose(100, fmt.Sprint(i, big))
		}
		truncated := func(id uint64) bool {
			first, _, _ := c.hosts[id].host.Group(100).storage.Extent()
			return first > 50
		}
		c.await(
			"the other logs to be truncated",
			func() bool { return truncated(2) && truncated(3) },
		)
		time.Sleep(10 * time.Second)
		if first, _, _ := replaced.storage.Extent(); first != 1 {
			t.Errorf("the log that is to be replaced begins at %d", first)
		}
		replaced.replacing.Add(-1)
		c.await("it to be truncated too", func() bool { return truncated(1) })
	})
}

func TestTransferSpreadsLeaders(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		n, term := c.awaitLeader(100)
		to := n.id%3 + 1
		n.host.Group(100).TransferLeader(term, keys.ReplicaID(to))
		c.await(
			"the transfer",
			func() bool { l, _ := c.leader(100); return l != nil && l.id == to },
		)
		c.propose(100, "b")
	})
}

func TestIdleGroupsCostNothing(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		before := runtime.NumGoroutine()
		var ids []keys.PartitionID
		for i := range 300 {
			ids = append(ids, keys.PartitionID(100+i))
		}
		c.create(ids...)
		for _, id := range ids {
			c.awaitLeader(id)
		}
		asleep := func() bool {
			n := 0
			for _, h := range c.hosts {
				n += h.host.Awake()
			}
			return n == 0
		}
		c.await("all groups to sleep", asleep)
		if after := runtime.NumGoroutine(); after > before+10 {
			t.Fatalf("%d goroutines for 300 groups, %d without", after, before)
		}
		c.net.mu.Lock()
		count := c.net.messages
		c.net.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		c.net.mu.Lock()
		if c.net.messages != count {
			t.Fatalf("sleeping groups sent %d messages", c.net.messages-count)
		}
		c.net.mu.Unlock()
		// A read wakes one of them.
		for _, n := range c.hosts {
			if g := n.host.Group(100); g.leadership.Load().IsLeader {
				if err := readIndex(g); err != nil {
					t.Fatal(err)
				}
			}
		}
		c.await("all groups to sleep again", asleep)
		// The host of a third of the leaders dies; their groups find others.
		c.crash(1)
		for _, id := range ids {
			c.await("another leader", func() bool {
				for _, n := range c.hosts {
					if n.host != nil && n.host.Group(id).leadership.Load().IsLeader {
						return true
					}
				}
				return false
			})
		}
	})
}

// Waking is portioned, so a group's turn may come when the host for whose silence it is to be woken
// has long been back, and leads.
func TestLateWakeUpLeavesALeaderAlone(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		leader, term := c.awaitLeader(100)
		asleep := func() bool {
			for _, n := range c.hosts {
				if n.host.Awake() > 0 {
					return false
				}
			}
			return true
		}
		c.await("the group to sleep", asleep)
		// Four seconds' worth of others come first.
		woken := 0
		for _, n := range c.hosts {
			if n == leader {
				continue
			}
			others := make([]waking, 40*wakesPerTick)
			for i := range others {
				// Groups of which it has no replica.
				others[i].wakeKey = wakeKey{
					group:  n.host.Group(100),
					host:   uint64(1000 + i),
					reason: followerBack,
				}
			}
			n.host.wakes.add(others)
		}
		c.net.isolate(leader.id, true)
		time.Sleep(1500 * time.Millisecond)
		for _, n := range c.hosts {
			if n.host.wakes.length()%wakesPerTick == 1 {
				woken++
			}
		}
		if woken != 2 {
			t.Fatalf("%d hosts have the group in their queues", woken)
		}
		c.net.isolate(leader.id, false)
		if err := readIndex(leader.host.Group(100)); err != nil {
			t.Fatal(err)
		}
		c.await("the group to sleep again", asleep)
		time.Sleep(10 * time.Second)
		if l, now := leader.host.Group(100).Leader(); l != leader.host.Group(100).Self() ||
			now != term ||
			!asleep() {
			t.Errorf("replica %s leads in term %d, asleep: %v", l, now, asleep())
		}
	})
}

func TestFailedReplicaDoesNotTakeOthersDown(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100, 101)
		c.propose(100, "a")
		n, term := c.awaitLeader(100)
		if err := n.host.Group(100).Propose(term, []byte("poison")); err != nil {
			t.Fatal(err)
		}
		// The leader applies it first. Another may follow, and then there is no quorum to tell the
		// third that it is committed.
		c.await(
			"the leader's replica to fail",
			func() bool { return n.host.Group(100).Failed() != nil },
		)
		if err := n.host.Group(100).Propose(term, nil); !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
		c.propose(101, "b")
	})
}

// A read that was taken in by the very pass in which the replica fails is answered.
func TestReadOfAReplicaThatFailsInTheSamePass(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		n, _ := c.awaitLeader(100)
		g := n.host.Group(100)
		pass := make(chan struct{})
		g.do(func(*Group) { <-pass })
		synctest.Wait()
		g.do(func(g *Group) { g.fail(errors.New("broken")) })
		answer := make(chan error, 1)
		g.ReadIndex(func(err error) { answer <- err })
		close(pass)
		select {
		case err := <-answer:
			if !errors.Is(err, ErrStopped) {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the read is not answered")
		}
	})
}

func TestRemove(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		c.propose(100, "a")
		for _, n := range c.hosts {
			g := n.host.Group(100)
			n.host.Remove(g)
			if err := n.host.Log().Remove(g.Identity()); err != nil {
				t.Fatal(err)
			}
			if err := g.Propose(1, nil); !errors.Is(err, ErrStopped) {
				t.Fatal(err)
			}
		}
		// Restarted, none of them remembers the group but as a tombstone.
		for id := range c.hosts {
			c.crash(id)
			c.start(id)
			if c.hosts[id].host.Group(100) != nil {
				t.Fatal("a removed replica came back")
			}
		}
	})
}

// Why a replica failed can be told from its error, also when it came as a panic. The stack is not
// part of its text, which clients read.
func TestPanickedKeepsTheReason(t *testing.T) {
	if err := panicked("raft", fmt.Errorf("reading: %w", engine.ErrFailed)); !errors.Is(
		err,
		engine.ErrFailed,
	) {
		t.Error(err)
	}
	if err := panicked("raft", "no leader"); err == nil || err.Error() != "raft: no leader" {
		t.Error(err)
	}
}

// A group that is opened knows how far its log was known to be committed before.
func TestCommitIsKnownToAnOpenedGroup(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		for _, value := range []string{"a", "b", "c"} {
			c.propose(100, value)
			c.await(value+" is everywhere", func() bool { return c.everywhere(100, value) })
		}
		n := c.hosts[1]
		before := n.host.Group(100).Committed()
		c.restart() // the commit index is stored with the next term
		c.propose(100, "d")
		c.await("d is everywhere", func() bool { return c.everywhere(100, "d") })
		c.crash(1)
		delete(n.machines, 100) // a state that has lost everything
		var opened uint64
		c.reopen = func(n *node, identity raftlog.Identity) {
			opened = c.open(n, identity, false).Committed()
		}
		c.start(1)
		if opened < before {
			t.Errorf("committed up to %d when opened, and up to %d before", opened, before)
		}
	})
}

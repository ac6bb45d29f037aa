package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// laggard is a cluster with one group, a follower of which needs a snapshot.
type laggard struct {
	*cluster
	leader, away, third *node
	term                uint64
}

// newLaggard makes the log of group 100 begin behind what one follower has. That one is not
// running.
func newLaggard(c *cluster) *laggard {
	c.create(100)
	c.propose(100, "a")
	leader, term := c.awaitLeader(100)
	l := &laggard{cluster: c, leader: leader, term: term, away: c.hosts[leader.id%3+1]}
	l.third = c.hosts[l.away.id%3+1]
	c.crash(l.away.id)
	l.load()
	return l
}

func (l *laggard) propose(value string) {
	l.t.Helper()
	if err := l.leader.host.Group(100).Propose(l.term, []byte(value)); err != nil {
		l.t.Fatal(err)
	}
}

// load proposes so much that the log is truncated behind all that was there before.
func (l *laggard) load() {
	l.t.Helper()
	l.needsNothing()
	g := l.leader.host.Group(100)
	_, before, _ := g.storage.Extent()
	big := strings.Repeat("x", 1000)
	for i := range 200 {
		l.propose(fmt.Sprint(i, big))
		time.Sleep(10 * time.Millisecond)
	}
	l.await("the log to be truncated",
		func() bool { first, _, _ := g.storage.Extent(); return first > before+1 })
}

// installing starts the follower and waits until it installs its first snapshot.
func (l *laggard) installing(onInstall func(n int) error) *Group {
	l.t.Helper()
	m := l.away.machines[100]
	m.onInstall = onInstall
	l.start(l.away.id)
	l.await("the first installation", func() bool { _, n := m.snapshots(); return n == 1 })
	return l.away.host.Group(100)
}

func (l *laggard) applied(n *node, value string) bool {
	_, values, _ := n.machines[100].state()
	return slices.Contains(values, value)
}

// needsNothing has the leader forget that the follower needs what comes after its snapshot, as it
// does when that becomes too much.
func (l *laggard) needsNothing() {
	synctest.Wait()
	l.leader.host.Group(100).do(func(g *Group) { clear(g.followers.kept) })
	synctest.Wait()
}

// While a follower installs a snapshot, it accepts another one, and entries behind that. They are
// not in its log, and must not be acknowledged, before the second one is installed too: a log that
// is replaced then would lose them.
func TestSecondSnapshotWhileTheFirstIsInstalled(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
		m := l.away.machines[100]
		g := l.installing(func(n int) error {
			if n <= len(gates) {
				<-gates[n-1]
			}
			return nil
		})
		// The second one covers all that is committed: an append that begins before that is not
		// taken.
		c.net.isolate(l.away.id, true)
		l.load()
		c.net.isolate(l.away.id, false)
		l.await("a second snapshot", func() bool { n, _ := m.snapshots(); return n == 2 })
		c.net.isolate(l.third.id, true)
		l.propose("acknowledged") // if it is, then by the follower that installs
		time.Sleep(time.Second)
		synctest.Wait()
		if l.applied(l.leader, "acknowledged") {
			t.Error("an entry was acknowledged while the first of two snapshots before it is " +
				"being installed")
		}
		close(gates[0])
		l.await("the second installation", func() bool { _, n := m.snapshots(); return n == 2 })
		time.Sleep(300 * time.Millisecond) // the leader is told of the first one
		synctest.Wait()
		if l.applied(l.leader, "acknowledged") {
			t.Error("an entry was acknowledged while the second of two snapshots before it is " +
				"being installed")
		}
		close(gates[1])
		l.await("the entry to be applied",
			func() bool { return l.applied(l.leader, "acknowledged") })
		if err := g.Failed(); err != nil {
			t.Fatal(err)
		}
		// The follower alone has it but for the leader, which is lost.
		c.crash(l.leader.id)
		c.crash(l.away.id)
		c.start(l.away.id)
		c.net.isolate(l.third.id, false)
		c.await("the next leader", func() bool {
			l.away.host.Group(100).Wake()
			n, _ := c.leader(100)
			return n != nil
		})
		c.propose(100, "next")
		for _, n := range []*node{l.away, l.third} {
			if !l.applied(n, "acknowledged") {
				t.Errorf("host %d lost an acknowledged entry", n.id)
			}
		}
	})
}

// removed removes the group of the follower; it fails the test if that does not end.
func (l *laggard) removed(g *Group, meanwhile func()) {
	l.t.Helper()
	var done atomic.Bool
	go func() {
		l.away.host.Remove(g)
		done.Store(true)
	}()
	synctest.Wait()
	meanwhile()
	l.await("Remove to return", done.Load)
	if n := len(g.installations); n != 0 {
		l.t.Errorf("%d installations are left", n)
	}
}

// A replica can be removed at any moment of an installation, with appends that wait for it: nothing
// of it is in flight afterwards, and a caller that waits for that does not wait for ever.
func TestRemoveWhileASnapshotIsInstalled(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		gate := make(chan struct{})
		g := l.installing(func(int) error { <-gate; return nil })
		l.awaitHeld(g)
		l.removed(g, func() { close(gate) })
	})
}

// awaitHeld waits for appends that wait for an installation.
func (l *laggard) awaitHeld(g *Group) {
	l.t.Helper()
	l.propose("held")
	var held atomic.Int64
	l.await("appends behind the snapshot", func() bool {
		g.do(func(g *Group) {
			n := 0
			for _, in := range g.installations {
				n += len(in.held)
			}
			held.Store(int64(n))
		})
		synctest.Wait()
		return held.Load() > 0
	})
}

func TestRemoveAfterASnapshotCouldNotBeInstalled(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no space") },
		"panic": func() error { panic("no space") },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, c *cluster) {
				l := newLaggard(c)
				gate := make(chan struct{})
				m := l.away.machines[100]
				g := l.installing(func(int) error { <-gate; return fail() })
				l.load()
				l.await("a second snapshot", func() bool { n, _ := m.snapshots(); return n == 2 })
				l.awaitHeld(g)
				close(gate)
				l.await("the replica to fail", func() bool { return g.Failed() != nil })
				if _, n := m.snapshots(); n != 1 {
					t.Errorf("%d snapshots were installed after one could not be", n-1)
				}
				l.removed(g, func() {})
			})
		})
	}
}

// The replica fails while it is asked to stop, and while a snapshot is reported as installed: both
// are dropped.
func TestRemoveOfAReplicaThatFailsAtTheSameMoment(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		gate, pass := make(chan struct{}), make(chan struct{})
		g := l.installing(func(int) error { <-gate; return nil })
		l.awaitHeld(g)
		g.do(func(*Group) { <-pass })
		synctest.Wait()
		g.do(func(g *Group) { g.fail(errors.New("broken")) })
		close(gate)
		l.removed(g, func() { close(pass) })
	})
}

// stream gives the follower a snapshot of an index as a leader would.
func (l *laggard) stream(index uint64) error {
	snap, err := l.leader.machines[100].Snapshot()
	if err != nil {
		return err
	}
	var content bytes.Buffer
	if err := snap.Write(l.t.Context(), &content); err != nil {
		return err
	}
	conf, err := proto.Marshal(&raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	if err != nil {
		return err
	}
	m := &peerpb.RaftMessage{Group: 100, Type: uint32(raftpb.MsgSnap), To: l.away.id,
		From: l.leader.id, Term: l.term,
		Snapshot: &peerpb.SnapshotMeta{Index: index, Term: snap.Term(), ConfState: conf}}
	return l.away.host.HandleSnapshot(l.t.Context(), l.leader.id,
		&peerpb.SnapshotHeader{Message: m}, &content)
}

// inOnePass streams snapshots so that the follower steps their messages in the same pass. It
// returns how many it did not refuse.
func (l *laggard) inOnePass(g *Group, indexes ...uint64) (taken int) {
	done := make(chan struct{})
	g.do(func(*Group) {
		defer close(done)
		for _, index := range indexes {
			if err := l.stream(index); err != nil {
				l.t.Log(err)
				continue
			}
			taken++
		}
	})
	<-done
	synctest.Wait()
	return taken
}

// A stream that was overtaken, of a former leader for one, ends just behind the one that counts:
// that one is still there when Raft accepts it. The other order is as good.
func TestSnapshotsAtTheSameMoment(t *testing.T) {
	for name, older := range map[string][2]uint64{"older last": {0, 5}, "older first": {5, 0},
		"equal": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, c *cluster) {
				l := newLaggard(c)
				c.net.isolate(l.away.id, true)
				c.start(l.away.id)
				g := l.away.host.Group(100)
				_, last, _ := l.leader.host.Group(100).storage.Extent()
				if n := l.inOnePass(g, last-older[0], last-older[1]); n != 2 {
					t.Fatalf("%d of 2 snapshots were taken", n)
				}
				if err := g.Failed(); err != nil {
					t.Fatal(err)
				}
				m := l.away.machines[100]
				if index, _, _ := m.state(); index != last {
					t.Errorf("the follower is at %d, not at %d", index, last)
				}
				if _, n := m.snapshots(); n != 1 {
					t.Errorf("%d snapshots were installed", n)
				}
				if n := m.discards(); n != 1 {
					t.Errorf("%d snapshots were discarded", n)
				}
				c.net.isolate(l.away.id, false)
				c.propose(100, "after")
			})
		})
	}
}

// Each snapshot that is kept takes the space of a partition.
func TestSnapshotsThatWaitAreBounded(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		gate := make(chan struct{})
		g := l.installing(func(int) error { <-gate; return nil })
		index, _, _ := l.leader.machines[100].state()
		var indexes []uint64
		for i := range uint64(maxStaged) {
			indexes = append(indexes, index+1+i)
		}
		if n := l.inOnePass(g, indexes...); n != maxStaged-1 {
			t.Errorf("%d snapshots were taken beside the one that is installed, want %d", n,
				maxStaged-1)
		}
		// All but the newest are gone with that pass.
		if n := l.inOnePass(g, index-1, index-2); n != maxStaged-2 {
			t.Errorf("%d snapshots were taken beside the two that are to be installed, want %d", n,
				maxStaged-2)
		}
		close(gate)
		synctest.Wait()
		if staged, installs := l.away.machines[100].snapshots(); installs != 2 ||
			staged != installs+l.away.machines[100].discards() {
			t.Errorf("%d snapshots were staged, %d installed, %d discarded", staged, installs,
				l.away.machines[100].discards())
		}
		if n := l.inOnePass(g, index-1, index-2, index-3, index-4); n != maxStaged {
			t.Errorf("%d snapshots were taken after all were installed, want %d", n, maxStaged)
		}
	})
}

// Removing a group does not wait for a follower that takes nothing of its snapshot.
func TestRemoveWhileASnapshotIsSent(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		c.net.onStream = func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c.start(l.away.id)
		c.await("the snapshot to be sent", func() bool { return c.net.streamed() == 1 })
		var done atomic.Bool
		begun := time.Now()
		go func() {
			l.leader.host.Remove(l.leader.host.Group(100))
			done.Store(true)
		}()
		c.await("Remove to return", done.Load)
		if d := time.Since(begun); d >= snapshotStall {
			t.Errorf("Remove waited for the stream to be given up, %s of virtual time", d)
		}
	})
}

// A stream that gets no further is given up, so that others have its slot, and is tried again. One
// that is slow is not.
func TestStalledSnapshotIsTriedAgain(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		c.net.onStream = func(ctx context.Context, n int) error {
			if n == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(snapshotStall / 2)
			return ctx.Err()
		}
		c.start(l.away.id)
		c.await("the snapshot to be sent", func() bool { return c.net.streamed() == 1 })
		time.Sleep(snapshotStall)
		c.await("the snapshot to be sent again", func() bool { return c.net.streamed() == 2 })
		time.Sleep(10 * snapshotStall)
		synctest.Wait()
		if _, n := l.away.machines[100].snapshots(); n != 1 || c.net.streamed() != 2 {
			t.Errorf("%d snapshots were installed, after %d streams", n, c.net.streamed())
		}
	})
}

// The append that makes the log follow a snapshot, and those that wait behind it, are submitted
// also when the shard is in a pass over several shards, which collects what all of them
// want in one place.
func TestInstalledInAPassOverSeveralShards(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		l := newLaggard(c)
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		defer open()
		g := l.installing(func(int) error { <-gate; return nil })
		// One in each shard of the follower's host. The first of those that come later shares none
		// with the group.
		c.create(101, 102, 103)
		h := l.away.host
		first, beside := h.Group(101), h.Group(103)
		if first.shard == g.shard || beside.shard != g.shard {
			t.Fatal("the groups are in other shards")
		}
		l.awaitLeader(101)
		l.awaitLeader(103)
		c.net.isolate(l.third.id, true) // what is acknowledged is so by the follower that installs
		l.awaitHeld(g)
		if l.applied(l.leader, "held") {
			t.Fatal("an entry was acknowledged before the snapshot before it was installed")
		}

		// The worker does not come to it, as if another goroutine were in a pass.
		s := g.shard
		synctest.Wait()
		s.mu.Lock()
		s.busy = true
		s.mu.Unlock()
		open()
		synctest.Wait()
		s.mu.Lock()
		s.busy = false
		s.mu.Unlock()
		if n := g.replacing.Load(); n != 1 {
			t.Fatalf("the log is to follow %d snapshots, and should 1", n)
		}
		snapshot, _, _ := l.away.machines[100].state()
		// The caller that brings messages for groups in two shards is in a pass over both. These
		// change nothing.
		var b peerpb.MessageBatch
		for _, to := range []*Group{first, beside} {
			b.Messages = append(b.Messages, &peerpb.RaftMessage{
				Group: uint64(
					to.ID(),
				), Type: uint32(raftpb.MsgHeartbeatResp), To: l.away.id, From: l.leader.id, Term: 1})
		}
		h.HandleMessages(l.leader.id, &b)
		synctest.Wait()
		if n := g.replacing.Load(); n != 0 {
			t.Error("the log does not follow the snapshot")
		}
		if !l.applied(l.leader, "held") {
			t.Error("what waited behind the snapshot is not acknowledged")
		}
		if err := g.Failed(); err != nil {
			t.Error(err)
		}
		firstIndex, last, _ := g.storage.Extent()
		if firstIndex != snapshot+1 || last <= snapshot {
			t.Errorf("the log has entries from %d to %d, behind a snapshot of %d", firstIndex, last,
				snapshot)
		}
		c.net.isolate(l.third.id, false)
	})
}

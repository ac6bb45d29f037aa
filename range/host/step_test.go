package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/host/applyqueue"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// What is proposed to several groups, of several shards, leaves in one message for each peer, and
// is one append of the log, here and there.
func TestProposalsLeaveTogether(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		groups := make([]keys.PartitionID, 12)
		for i := range groups {
			groups[i] = keys.PartitionID(100 + i)
		}
		c.create(groups...)
		led := []keys.PartitionID{100, 103, 106, 109}
		terms := make(map[keys.PartitionID]uint64)
		c.await("leaders", func() bool {
			for _, id := range led {
				n, term := c.leader(id)
				if n == nil || n.id != 1 {
					return false
				}
				terms[id] = term
			}
			return true
		})
		synctest.Wait()
		h := c.hosts[1].host
		c.net.mu.Lock()
		c.net.batches = make(map[[2]uint64][]*peerpb.MessageBatch)
		c.net.mu.Unlock()
		for _, id := range led {
			if err := h.Group(id).ProposeInPass(terms[id], []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := c.net.carried(1, 2); len(got) > 0 {
			t.Fatalf("%v left before Step", got)
		}
		h.Step(func(yield func(*Group) bool) {
			for _, id := range groups {
				if !yield(h.Group(id)) {
					return
				}
			}
		})
		synctest.Wait()
		for _, peer := range []uint64{2, 3} {
			if got := c.net.carried(1, peer); !slices.Equal(got, []int{4}) {
				t.Errorf("host %d was sent messages with the entries of %v groups, want one with "+
					"those of 4", peer, got)
			}
		}
		for _, id := range led {
			if _, values, _ := c.hosts[1].machines[id].state(); !slices.Equal(values,
				[]string{"x"}) {
				t.Errorf("the leader of %s has applied %q", id, values)
			}
		}
	})
}

// What is left for Step keeps no other caller waiting: one that has something for the group takes
// it along.
func TestProposalLeftForLaterHoldsUpNobody(t *testing.T) {
	for name, other := range map[string]func(g *Group, term uint64) error{
		"proposal": func(g *Group, term uint64) error { return g.Propose(term, []byte("b")) },
		"read":     func(g *Group, _ uint64) error { g.ReadIndex(func(error) {}); return nil },
		"wake":     func(g *Group, _ uint64) error { g.Wake(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, c *cluster) {
				c.create(100)
				leader, term := c.awaitLeader(100)
				g := leader.host.Group(100)
				if err := errors.Join(g.ProposeInPass(term, []byte("a")),
					other(g, term)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if _, values, _ := leader.machines[100].state(); len(values) == 0 ||
					values[0] != "a" {
					t.Errorf("the leader has applied %q, and no time has passed", values)
				}
			})
		})
	}
}

// carried is how many groups' entries each message with entries had.
func (n *network) carried(from, to uint64) []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []int
	for _, b := range n.batches[[2]uint64{from, to}] {
		groups := 0
		for _, m := range b.Messages {
			if len(m.Entries) > 0 {
				groups++
			}
		}
		out = append(out, groups)
	}
	return out
}

// lag proposes entries one after the other, while no time passes, and returns the leader and
// another host, which knows of all but the last one that they are committed.
func (c *cluster) lag(id keys.PartitionID, values ...string) (leader, follower *node) {
	c.t.Helper()
	leader, term := c.awaitLeader(id)
	c.propose(id, "first")
	synctest.Wait()
	for _, v := range values {
		if err := leader.host.Group(id).Propose(term, []byte(v)); err != nil {
			c.t.Fatal(err)
		}
		synctest.Wait()
	}
	return leader, c.hosts[leader.id%3+1]
}

// A leader applies at once, its followers a little later, and then much at a time.
func TestFollowersApplyLater(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		values := strings.Fields("a b c d e f g h i j")
		leader, follower := c.lag(100, values...)
		if _, got, _ := leader.machines[100].state(); !slices.Equal(got[1:], values) {
			t.Fatalf("the leader has applied %q", got)
		}
		m := follower.machines[100]
		_, got, _ := m.state()
		if len(got) != 1 {
			t.Fatalf("a follower has applied %q, and no time has passed", got)
		}
		m.mu.Lock()
		before := m.applies
		m.mu.Unlock()
		time.Sleep(applyAfter)
		synctest.Wait()
		if _, got, _ := m.state(); !slices.Equal(got[1:], values[:9]) {
			t.Errorf("after %v the follower has applied %q", applyAfter, got)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if n := m.applies - before; n != 1 {
			t.Errorf("the follower has applied %d times", n)
		}
	})
}

// What is much does not wait.
func TestMuchIsNotLeftForLater(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		_, follower := c.lag(100, "small", strings.Repeat("x", applyqueue.MaxDelayedBytes), "last")
		if _, got, _ := follower.machines[100].state(); len(got) != 3 || got[1] != "small" {
			t.Errorf("the follower has applied %d entries", len(got))
		}
	})
}

// A follower that comes to lead applies what it has left, in order and before anything of its own.
func TestLeaderAppliesWhatItLeft(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		leader, follower := c.lag(100, "a", "b", "c")
		if _, got, _ := follower.machines[100].state(); len(got) != 1 {
			t.Fatalf("the follower has applied %q already", got)
		}
		_, term := leader.host.Group(100).Leader()
		leader.host.Group(100).TransferLeader(term, keys.ReplicaID(follower.id))
		c.await("the follower to lead", func() bool { n, _ := c.leader(100); return n == follower })
		if _, got, _ := follower.machines[100].state(); !slices.Equal(got,
			[]string{"first", "a", "b", "c"}) {
			t.Errorf("the new leader has applied %q", got)
		}
		c.propose(100, "d")
	})
}

// What is left for later holds up neither the removal of a replica nor the end of a host.
func TestEndsWithTasksForLater(t *testing.T) {
	for _, remove := range []bool{true, false} {
		t.Run(fmt.Sprintf("remove=%t", remove), func(t *testing.T) {
			simulate(t, func(t *testing.T, c *cluster) {
				c.create(100)
				_, follower := c.lag(100, "a", "b", "c")
				if remove {
					follower.host.Remove(follower.host.Group(100))
				}
				c.stop(follower.id)
			})
		})
	}
}

func applyMessage(size int) *raftpb.Message {
	return &raftpb.Message{Entries: []*raftpb.Entry{{Data: make([]byte, size)}}}
}

func TestTogether(t *testing.T) {
	entries := func(size int) task {
		return task{apply: applyMessage(size)}
	}
	other := task{run: func() {}}
	for _, test := range []struct {
		tasks []task
		want  int
	}{
		{[]task{other, entries(1)}, 1},
		{[]task{entries(1)}, 1},
		{[]task{entries(1), entries(1), other, entries(1)}, 2},
		{[]task{entries(maxBatchBytes), entries(1)}, 1},
		{[]task{entries(1), entries(maxBatchBytes), entries(1)}, 2},
	} {
		if got := together(test.tasks); got != test.want {
			t.Errorf("%d of %d tasks are run together, want %d", got, len(test.tasks), test.want)
		}
	}
}

package node

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A frozen partition answers nothing, neither reads nor writes nor when
// it is read, as long as it is frozen: also when
// another replica has come to lead it. The attempt is taken back after a while; then all goes on.
func TestFrozenAnswersNothing(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newMergeTest(t, 3)
			leads, _ := s.leads(s.right)
			s.freeze()
			if restart {
				m := s.c.nodes[leads]
				m.stop()
				m.start()
				s.c.awaitServing(m)
			}
			read := s.async(&kvpb.Request{Command: &kvpb.Request_Get{
				Get: &kvpb.GetRequest{Key: []byte("k150")}}})
			moment := s.async(&kvpb.Request{Command: &kvpb.Request_MergeScan{
				MergeScan: &kvpb.MergeScanRequest{Partitions: []*kvpb.PartitionRoute{s.route()}}}})
			write := s.async(&kvpb.Request{Command: &kvpb.Request_Put{
				Put: &kvpb.PutRequest{Key: []byte("k150"), Value: []byte("during")}}})
			time.Sleep(time.Second) // virtual
			frozen := s.rightLeads().Replica.Descriptor().GetFrozen() != nil
			if frozen && (len(read) > 0 || len(write) > 0 || len(moment) > 0) {
				t.Errorf("answered while it is frozen: %d reads, %d writes, %d moments", len(read),
					len(write), len(moment))
			}
			s.c.await("the freeze ends", time.Minute, func() bool {
				node, _ := s.c.leaderOf(s.right)
				return node != 0 && s.hosted(node, s.right).Replica.Descriptor().GetFrozen() == nil
			})
			for _, answers := range []chan *kvpb.Response{read, write, moment} {
				if r := <-answers; r.Error != nil && !restart {
					t.Errorf("after the freeze: %v", r)
				}
			}
			s.put("k150", "after")
			s.expect("k150", "after")
			s.merge()
			s.expect("k150", "after")
		})
	}
}

// A freeze lasts as long as the left neighbour has the epoch that it names, however long that is.
func TestFreezeIsNotEndedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.freeze()
		// The left one cannot change: nothing of it arrives anywhere.
		s.c.network.lose(func(_ uint64, m *peerpb.RaftMessage) bool { return m.Group == s.left })
		time.Sleep(10 * mergeTimeout) // virtual
		for node := range s.c.nodes {
			if s.hosted(node, s.right).Replica.Descriptor().GetFrozen() == nil {
				t.Fatalf("node %d: the right one is not frozen any more, and the left one could still "+
					"consume it", node)
			}
		}
		s.c.network.lose(nil)
		s.c.await("the freeze ends", time.Minute, func() bool {
			node, _ := s.c.leaderOf(s.right)
			return node != 0 && s.hosted(node, s.right).Replica.Descriptor().GetFrozen() == nil
		})
		s.put("k150", "after")
	})
}

// A later generation of the left one on this node does not prove that it has not consumed the right
// one: it may have, and come here by a snapshot that does not reach so far. The table does.
func TestGenerationIsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.freeze()
		s.c.core.mu.Lock()
		s.c.core.follow = false
		s.c.core.mu.Unlock()
		node, _ := s.leads(s.left)
		left := s.hosted(node, s.left).Replica.Descriptor()
		child := proto.Clone(left).(*clusterpb.Partition)
		left = proto.Clone(left).(*clusterpb.Partition)
		left.End = keys.InternalKey(left, []byte("k050"))
		left.Generation++
		child.Id, child.Generation, child.SplitFrom = s.c.next, left.Generation, left.Id
		child.Start, child.SplitIndex = left.End, 0
		s.c.next++
		if err := s.hosted(node, s.left).Replica.Reshape().Split(context.Background(), left,
			child); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * mergeTimeout) // virtual
		if s.hosted(node, s.right).Replica.Descriptor().GetFrozen() == nil {
			t.Error("the freeze ended, and only the left one's generation was seen to be later")
		}
		s.c.core.mu.Lock()
		s.c.core.follow = true
		s.c.core.mu.Unlock()
		s.c.await("the freeze ends", time.Minute, func() bool {
			return s.hosted(node, s.right).Replica.Descriptor().GetFrozen() == nil
		})
		s.put("k150", "after")
	})
}

// The left one is consumed itself before it has consumed the right one: the freeze ends.
func TestFreezeForWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		right := s.right
		s.splitAt("k050")
		middle := s.of("k060").Id
		// The left ones of both are led by one node.
		s.right = middle
		s.c.await("one node leads all", time.Minute, func() bool {
			l, _ := s.c.believedLeader(s.left)
			m, _ := s.c.believedLeader(middle)
			r, _ := s.c.believedLeader(right)
			return l != 0 && l == m && m == r
		})
		node, _ := s.leads(middle)
		of := s.hosted(node, right)
		if err := of.Replica.Reshape().FreezeFor(context.Background(), of.Replica.Descriptor(),
			s.hosted(node, middle).Replica.Descriptor()); err != nil {
			t.Fatal(err)
		}
		s.orderMerge()
		s.c.await("the left one consumes the middle one", time.Minute,
			func() bool { return len(s.partitions()) == 2 })
		s.give(0, nil)
		s.c.await("the freeze ends", time.Minute, func() bool {
			node, _ := s.c.leaderOf(right)
			return node != 0 && s.hosted(node, right).Replica.Descriptor().GetFrozen() == nil
		})
		s.put("k150", "after")
	})
}

// A thaw ends the freeze that it is for, and no other one.
func TestThawOfAnotherFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.freeze()
		h := s.rightLeads()
		f := proto.Clone(h.Replica.Descriptor().GetFrozen()).(*clusterpb.Freeze)
		f.Membership--
		if err := h.Replica.Reshape().Thaw(context.Background(), f); err == nil {
			t.Error("a freeze for one epoch was ended as one for another")
		}
	})
}

// A table that lags lists what the left one has split off from, beside the frozen one: that is no
// proof that the attempt to merge is over.
func TestLaggingTableIsNoProof(t *testing.T) {
	span := func(id, generation, membership uint64, from, to string) *clusterpb.Partition {
		prefix := keys.KeyspacePrefix(7)
		p := &clusterpb.Partition{Id: id, Keyspace: 7, PrefixLength: keys.KeyspacePrefixLength,
			Generation: generation, Membership: membership, Start: append(bytes.Clone(prefix), from...),
			End: append(bytes.Clone(prefix), to...)}
		return p
	}
	frozen := span(103, 3, 2, "m", "z")
	f := &clusterpb.Freeze{Partition: 102, Generation: 3, Membership: 5}
	for _, c := range []struct {
		what    string
		table   []*clusterpb.Partition
		decided bool
	}{
		{"as it is", []*clusterpb.Partition{span(102, 3, 5, "f", "m"), frozen}, false},
		{"before its last change", []*clusterpb.Partition{span(102, 3, 4, "f", "m"), frozen}, false},
		{"before it split off", []*clusterpb.Partition{span(101, 2, 9, "a", "m"), frozen}, false},
		{"after the attempt was given up", []*clusterpb.Partition{span(102, 3, 6, "f", "m"), frozen},
			true},
		{"after it has split", []*clusterpb.Partition{span(102, 4, 5, "f", "h"),
			span(104, 4, 5, "h", "m"), frozen}, true},
		{"after it was consumed", []*clusterpb.Partition{span(101, 4, 9, "a", "m"), frozen}, true},
		{"after it has consumed the frozen one", []*clusterpb.Partition{span(102, 4, 5, "f", "z")},
			false},
	} {
		table := table.New().With(&clusterpb.TableUpdate{Partitions: c.table})
		table.Complete = true
		if got := decidedInTable(table, &hosted.Replica{ID: 103}, f); got != c.decided {
			t.Errorf("a table from %s decides: %v", c.what, got)
		}
	}
}

// An attempt to merge leaves both partitions with later epochs, and nothing is written into them
// afterwards. The core hears of these epochs all the same, and the next attempt succeeds.
func TestIdlePartitionsMergeAfterAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.freeze()
		s.c.await("the freeze ends", time.Minute, func() bool {
			node, _ := s.c.leaderOf(s.right)
			return node != 0 && s.hosted(node, s.right).Replica.Descriptor().GetFrozen() == nil
		})
		s.merge()
		s.expect("k150", "before")
	})
}

// The core has an older descriptor of the right partition than its leader has reported. The order
// that is made from it is refused, and the partition reported once more.
func TestRefusedMergeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.whileNothingIsTaken(s.right)
		s.merge()
		s.expect("k150", "before")
	})
}

// The same of the left one, to which the order is given: it does not fit.
func TestOutdatedOrderIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.whileNothingIsTaken(s.left)
		s.merge()
		s.expect("k150", "before")
	})
}

// whileNothingIsTaken raises the membership of a partition, and the core hears of it and takes no
// notice.
func (s *mergeTest) whileNothingIsTaken(id uint64) {
	s.c.t.Helper()
	follow := func(follow bool) {
		s.c.core.mu.Lock()
		defer s.c.core.mu.Unlock()
		s.c.core.follow = follow
	}
	follow(false)
	node, _ := s.leads(id)
	h := s.hosted(node, id)
	next := proto.Clone(h.Replica.Descriptor()).(*clusterpb.Partition)
	next.Membership++
	for _, err := range []error{h.Replica.Reshape().ChangeDescriptor(context.Background(), next),
		h.Replica.Writes().Fence(context.Background())} {
		if err != nil {
			s.c.t.Fatal(err)
		}
	}
	time.Sleep(time.Hour) // virtual: until nothing is left to report
	follow(true)
	s.c.core.mu.Lock()
	defer s.c.core.mu.Unlock()
	if r := s.c.core.reports[id]; r.GetDescribed().GetMembership() != next.Membership ||
		s.c.core.table.Partition(keys.PartitionID(id)).Membership == next.Membership {
		s.c.t.Fatalf("the core has heard %v", r)
	}
}

package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A node that was away is sent a snapshot from after the merge: it takes the place of both
// replicas. Also when the partition has split since, so that it is narrower than they were; and
// when the node crashes right after.
func TestSnapshotAcrossMerge(t *testing.T) {
	for _, c := range []struct {
		name  string
		split string
		crash bool
	}{{"wider", "", false}, {"split in the right one", "k150", false},
		{"split in the left one", "k050", false}, {"crash", "", true},
		{"split and crash", "k150", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMergeTest(t, 3)
				node, _ := s.leads(s.right)
				away := node%3 + 1
				m := s.c.nodes[away]
				s.lag(away, func() {
					if c.split != "" {
						s.splitAt(c.split)
					}
				})
				s.c.network.lose(nil)
				s.whole(m)
				if c.crash {
					m.crash()
					m.start()
					s.whole(m)
				}
				s.c.await("its log goes", time.Minute, func() bool { return s.buried(m) })
				s.overwrite()
			})
		})
	}
}

// A replica is about to be removed when a snapshot takes its place: it goes, and what the snapshot
// has brought stays.
func TestTakenWhileRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		node, _ := s.leads(s.right)
		away := node%3 + 1
		m := s.c.nodes[away]
		s.lag(away, func() {})
		m.lifecycle.Retire([]*hosted.Replica{s.hosted(away, s.right)})
		s.c.network.lose(nil)
		s.c.await("it goes", time.Minute, func() bool { return s.hosted(away, s.right) == nil })
		s.whole(m)
		s.overwrite()
	})
}

// The left one leaves a node that has not come to the merge, and the right one's replica there is
// left over: the table proves that. It goes, but not as long as the left one might need it.
func TestLeftOverGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 4)
		node, _ := s.leads(s.right)
		away := node%3 + 1
		m := s.c.nodes[away]
		s.lag(away, func() {})
		// It knows the table, and has yet to come to the merge.
		s.c.core.compact()
		m.lifecycle.Reconciler.Present()
		time.Sleep(10 * time.Second) // virtual
		if s.hosted(away, s.right) == nil {
			t.Fatal("the replica is gone, and the left one needs it to merge")
		}
		moved := proto.Clone(s.partitions()[0]).(*clusterpb.Partition)
		moved.Membership += 3
		moved.NextReplica = 5
		for _, r := range moved.Replicas {
			if r.Node == away {
				r.Node, r.Replica = 4, 4
			}
		}
		s.c.core.update(&clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{moved}})
		s.c.await("both go", 2*time.Minute, func() bool {
			return s.hosted(away, s.left) == nil && s.hosted(away, s.right) == nil && s.buried(m)
		})
		if problems, err := m.CheckState(context.Background()); len(problems) > 0 || err != nil {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// The log of a consumed replica goes when what has consumed it is durable, and not before; and a
// start after a crash in between finishes that.
func TestConsumedLogGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		m := s.c.nodes[1]
		for _, m := range s.c.nodes {
			if err := m.state.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		s.merge()
		gone := func() bool { return s.hosted(1, s.right) == nil }
		s.c.await("it is closed", time.Minute, gone)
		if s.buried(m) {
			t.Fatal("its log is gone, and a crash would take the merge back")
		}
		m.crash()
		m.start()
		s.c.await("they merge again", time.Minute, func() bool {
			return gone() && s.hosted(1, s.left).Replica.Descriptor().GetGeneration() == 3
		})
		if err := m.state.Flush(); err != nil {
			t.Fatal(err)
		}
		m.crash()
		m.start()
		if !s.buried(m) || !gone() {
			t.Error("the merge was durable, and the log of what it consumed is still there after a start")
		}
		s.c.await("the others' logs go", time.Minute, func() bool {
			return s.buried(s.c.nodes[2]) && s.buried(s.c.nodes[3])
		})
		for _, m := range s.c.nodes {
			s.whole(m)
		}
		for _, k := range []string{"k000", "k099", "k100", "k199"} {
			s.expect(k, "before")
		}
	})
}

// A replica is named out, or its keyspace dropped, while it is made: it goes when it is there.
func TestNamedOutWhileMade(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newMergeTest(t, 4)
			m, p := s.c.nodes[4], s.of("k150")
			with := proto.Clone(p).(*clusterpb.Partition)
			with.Membership++
			with.Replicas = append(with.Replicas,
				&clusterpb.Replica{Node: 4, Replica: 4, Role: clusterpb.ReplicaRole_LEARNER})
			if dropped {
				s.c.core.update(&clusterpb.TableUpdate{RemovedKeyspaces: []uint32{7},
					RemovedPartitions: []uint64{s.left, s.right}})
			} else {
				without := proto.Clone(p).(*clusterpb.Partition)
				without.Membership += 2
				s.c.core.update(&clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{without}})
			}
			time.Sleep(10 * time.Second) // virtual
			m.lifecycle.Reconciler.Create(context.Background(), []*clusterpb.Partition{with})
			s.c.await("it goes", time.Minute, func() bool { return s.hosted(4, s.right) == nil })
		})
	}
}

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/lifecycle"
	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// mergeTest is two partitions of keyspace 7 that can merge: what is below k100, and the rest.
type mergeTest struct {
	*divider
	left, right uint64
}

func newMergeTest(t *testing.T, nodes int) *mergeTest {
	c := newCluster(t, nodes, func(config *Config) { config.RetainLogBytes = 1 })
	s := &mergeTest{divider: newDivider(c, 1, 2)}
	for i := range splitKeys {
		s.put(key(i), "before")
	}
	s.splitAt("k100")
	s.left, s.right = s.partitions()[0].Id, s.partitions()[1].Id
	return s
}

// give has the core give one order to the leader of a partition.
func (s *mergeTest) give(id uint64, order func(*clusterpb.Partition) *clusterpb.Order) {
	s.c.core.mu.Lock()
	defer s.c.core.mu.Unlock()
	s.c.core.orders = func(p *clusterpb.Partition) *clusterpb.Order {
		if order == nil || p == nil || p.Id != id {
			return nil
		}
		return order(p)
	}
}

func (s *mergeTest) splitAt(k string) {
	s.c.t.Helper()
	child := s.c.next
	s.c.next++
	s.give(s.of(k).Id, func(p *clusterpb.Partition) *clusterpb.Order {
		left := proto.Clone(p).(*clusterpb.Partition)
		left.Generation++
		left.End = keys.InternalKey(p, []byte(k))
		right := proto.Clone(p).(*clusterpb.Partition)
		right.Id, right.Generation, right.Start, right.SplitFrom = child, left.Generation, left.End,
			p.Id
		right.SplitIndex = 0
		return &clusterpb.Order{Operator: 1, Target: left, Child: right}
	})
	s.c.await("it splits", time.Minute, func() bool { return s.of(k).Id == child })
	s.give(0, nil)
}

// merge has both merged, and the table know of it.
func (s *mergeTest) merge() {
	s.c.t.Helper()
	s.orderMerge()
	s.c.await("they merge", time.Minute, func() bool { return len(s.partitions()) == 1 })
	s.give(0, nil)
}

func (s *mergeTest) orderMerge() {
	s.c.await("one node leads both", time.Minute, func() bool {
		l, _ := s.c.believedLeader(s.left)
		r, _ := s.c.believedLeader(s.right)
		return l != 0 && l == r
	})
	s.give(s.left, func(p *clusterpb.Partition) *clusterpb.Order {
		right := s.c.core.table.Partition(keys.PartitionID(s.right))
		if right == nil || right.GetFrozen() != nil {
			return nil
		}
		target := proto.Clone(p).(*clusterpb.Partition)
		target.End, target.Generation = right.End, max(p.Generation, right.Generation)+1
		return &clusterpb.Order{Operator: 3, Target: target, Consume: right}
	})
}

// leads is the node that leads a partition, and its term.
func (s *mergeTest) leads(id uint64) (node, term uint64) {
	s.c.t.Helper()
	s.c.await("a partition is led", time.Minute, func() bool {
		node, term = s.c.leaderOf(id)
		return node != 0
	})
	return node, term
}

// handOver has a partition's leader hand over to the replica on a node.
func (s *mergeTest) handOver(id, to uint64) {
	s.c.t.Helper()
	from, _ := s.leads(id)
	s.hosted(from, id).Replica.Writes().TransferLeader(s.hosted(to, id).Self)
	deadline := time.Now().Add(time.Minute)
	for !s.hosted(to, id).Replica.Serving() {
		if time.Now().After(deadline) {
			s.c.t.Fatalf("node %d does not come to lead partition %d", to, id)
		}
		time.Sleep(time.Millisecond) // virtual
	}
}

func (s *mergeTest) hosted(node, id uint64) *hosted.Replica {
	return s.c.nodes[node].replicas.Get(keys.PartitionID(id))
}

// rightLeads is the right partition's replica that leads.
func (s *mergeTest) rightLeads() *hosted.Replica {
	node, _ := s.leads(s.right)
	return s.hosted(node, s.right)
}

// freeze freezes the right one for the left one's present epoch.
func (s *mergeTest) freeze() {
	s.c.t.Helper()
	node, _ := s.leads(s.left)
	left := s.hosted(node, s.left).Replica.Descriptor()
	h := s.rightLeads()
	if err := h.Replica.Reshape().FreezeFor(context.Background(), h.Replica.Descriptor(),
		left); err != nil {
		s.c.t.Fatal(err)
	}
}

// async sends a request to the right partition's leader.
func (s *mergeTest) async(q *kvpb.Request) chan *kvpb.Response {
	node, term := s.leads(s.right)
	sequence++
	q.Id, q.Sequence = sequence, sequence
	q.Partition, q.Term = s.right, term
	q.Generation = s.hosted(node, s.right).Replica.Descriptor().GetGeneration()
	answers := make(chan *kvpb.Response, 1)
	handle(s.c.nodes[node].Node, 77, []*kvpb.Request{q}, func(r *kvpb.Response) { answers <- r })
	return answers
}

// route is how the right one is asked.
func (s *mergeTest) route() *kvpb.PartitionRoute {
	node, term := s.leads(s.right)
	return &kvpb.PartitionRoute{Partition: s.right, Term: term,
		Generation: s.hosted(node, s.right).Replica.Descriptor().GetGeneration()}
}

// A merge is taken back if not all replicas of the right one have the freeze: one of them could not
// be brought to it.
func TestMergeWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		node, _ := s.leads(s.right)
		away := node%3 + 1
		begun := false
		s.c.network.lose(func(to uint64, m *peerpb.RaftMessage) bool {
			begun = begun || s.hosted(node, s.right).Replica.Descriptor().GetFrozen() != nil
			for _, e := range m.Entries {
				// The entry that freezes it, which is not applied anywhere yet, has the left one's id.
				begun = begun || m.Group == s.right && bytes.Contains(e.GetData(), []byte{0x72, 0x06})
			}
			return begun && to == away && m.Group == s.right
		})
		s.orderMerge()
		s.c.await("the attempt is taken back", time.Minute, func() bool {
			node, _ := s.c.leaderOf(s.left)
			return node != 0 && s.hosted(node, s.left).Replica.Descriptor().GetMembership() > 1
		})
		s.give(0, nil)
		for id := range s.c.nodes {
			if s.hosted(id, s.left).Replica.Descriptor().GetGeneration() != 2 {
				t.Errorf("node %d: they merged, and node %d did not have the freeze", id, away)
			}
		}
		s.c.network.lose(nil)
		for i := range splitKeys {
			s.put(key(i), "after")
		}
		s.merge()
		s.expect("k199", "after")
	})
}

// What the right one has served is not written below by the left one, nor read below its threshold;
// and its locks are there.
func TestMergeInherits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		node, _ := s.leads(s.right)
		n := s.c.nodes[node]
		id := bytes.Repeat([]byte{7}, 16)
		begun := n.config.Clock.Now()
		if r := s.do("k180", func(p *clusterpb.Partition, term uint64) *kvpb.Request {
			q := put(p, term, "k180", "")
			q.Session = wire.ToTimestamp(begun)
			q.Command = &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
				Transaction: &kvpb.Transaction{Id: id, Anchor: []byte("k180"), Keyspace: 7,
					Begun: wire.ToTimestamp(begun), Started: wire.ToTimestamp(begun)},
				Mutations: []*kvpb.Mutation{{Kind: kvpb.Mutation_PUT, Key: []byte("k180")}}}}
			return q
		}); r.Error != nil {
			t.Fatal(r.Error)
		}
		// Another node leads the right one for a moment, and serves a read in the near future, as a
		// faster clock has it. This node's clock does not hear of that.
		other := node%3 + 1
		s.handOver(s.right, other)
		_, term := s.leads(s.right)
		ahead := hlc.Timestamp{Wall: s.c.nodes[other].physical.Now() + int64(200*time.Millisecond)}
		q := get(s.of("k150"), term, "k150")
		q.GetGet().At = &kvpb.Timestamp{Wall: uint64(ahead.Wall)}
		if r := s.c.ask(other, q)[q.Id]; r.GetError() != nil {
			t.Fatal(r.Error)
		}
		s.handOver(s.right, node)
		_, term = s.leads(s.right)
		last := ahead.Add(50 * time.Millisecond)
		q = get(s.of("k150"), term, "k150")
		q.GetGet().At = &kvpb.Timestamp{Wall: uint64(last.Wall)}
		if r := s.c.ask(node, q)[q.Id]; r.GetError() != nil {
			t.Fatal(r.Error)
		}
		left, right := s.hosted(node, s.left), s.hosted(node, s.right)
		s.freeze()
		target := proto.Clone(left.Replica.Descriptor()).(*clusterpb.Partition)
		target.End, target.Generation = right.Replica.Descriptor().End, 3
		if err := n.allHaveFreeze(context.Background(), right); err != nil {
			t.Fatal(err)
		}
		if err := left.Replica.Reshape().Consume(context.Background(), target,
			right.Replica); err != nil {
			t.Fatal(err)
		}
		_, term = s.leads(s.left)
		q = put(target, term, "k150", "after")
		r := s.c.ask(node, q)[q.Id]
		version := r.GetPut().GetVersion()
		at := hlc.Timestamp{Wall: int64(version.GetWall()), Logical: version.GetLogical()}
		if r.Error != nil || at.LessEq(last) {
			t.Errorf("written at %s what was served at %s: %v", at, last, r.GetError())
		}
		recorded, _, err := storage.ReadRecorded(n.state, keys.PartitionID(s.left))
		if err != nil || recorded.Closed.Less(last) {
			t.Errorf("closed at %s, and a read was served at %s: %v", recorded.Closed, last, err)
		}
		s.c.await("all have merged", time.Minute, func() bool {
			for id := range s.c.nodes {
				if s.hosted(id, s.left).Replica.Intents() != 1 {
					return false
				}
			}
			return true
		})
	})
}

// lag has a node miss all of the left one's log from the freeze on, until the others have thrown
// away what it lacks.
func (s *mergeTest) lag(away uint64, meanwhile func()) {
	s.c.t.Helper()
	begun := false
	lead, _ := s.leads(s.right)
	h := s.hosted(lead, s.right)
	s.c.network.lose(func(to uint64, m *peerpb.RaftMessage) bool {
		begun = begun || h.Replica.Descriptor().GetFrozen() != nil
		return begun && to == away && m.Group != s.right
	})
	s.merge()
	meanwhile()
	big := strings.Repeat("x", 2000)
	for round := range 3 {
		for i := range splitKeys {
			s.put(key(i), fmt.Sprint(round, big))
		}
		for id, m := range s.c.nodes {
			if id != away {
				if err := m.state.Flush(); err != nil {
					s.c.t.Fatal(err)
				}
			}
		}
		time.Sleep(30 * time.Second) // virtual: logs are truncated
	}
	node, _ := s.leads(s.left)
	if first, _, _ := s.hosted(node, s.left).Group.Storage().Extent(); first < 200 {
		s.c.t.Fatalf("the log still begins at %d", first)
	}
	if s.hosted(away, s.right) == nil ||
		s.hosted(away, s.left).Replica.Descriptor().GetGeneration() != 2 {
		s.c.t.Fatalf("node %d has come to the merge", away)
	}
}

// whole waits until a node has what the table has, and nothing else.
func (s *mergeTest) whole(m *member) {
	s.c.t.Helper()
	var why string
	defer func() {
		if s.c.t.Failed() {
			s.c.t.Log(why)
		}
	}()
	s.c.await("a node has the replicas of the table, and no others", 3*time.Minute, func() bool {
		parts := s.partitions()
		why = fmt.Sprintf("%d replicas of %d", len(m.replicas.All()), len(parts))
		for _, p := range parts {
			h := m.replicas.Get(keys.PartitionID(p.Id))
			if (h != nil) != (m.base.ReplicaHere(p) != nil) {
				why = fmt.Sprintf("partition %d: %v", p.Id, h != nil)
				return false
			}
			if h != nil && keys.CompareEpochs(h.Replica.Descriptor(), p) != 0 {
				why = fmt.Sprintf("partition %d: %v, %v", p.Id, h.Replica.Descriptor(), p)
				return false
			}
		}
		for id := range m.replicas.All() {
			if m.tables.Load().Partition(id) == nil {
				why = fmt.Sprintf("partition %s is left", id)
				return false
			}
		}
		return true
	})
	if problems, err := m.CheckState(context.Background()); len(problems) > 0 || err != nil {
		s.c.t.Errorf("node %d: %v, %v", m.id, problems, err)
	}
	if failed := m.lifecycle.Failed(); len(failed) > 0 {
		s.c.t.Errorf("node %d: replicas failed: %v", m.id, failed)
	}
}

// buried says whether the log of the right one is gone from a node for good.
func (s *mergeTest) buried(m *member) bool {
	id, known, err := m.host.Log().Identity(keys.PartitionID(s.right))
	return err == nil && known && id.Removed
}

// Of a keyspace that is dropped the replicas are closed from left to right: none that is about to
// consume its right neighbour misses it.
func TestClosedLeftFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		for _, at := range []string{"k050", "k150", "k025", "k075"} {
			s.splitAt(at)
		}
		m := s.c.nodes[1]
		var gone []*hosted.Replica
		for _, h := range m.replicas.All() {
			gone = append(gone, h)
		}
		lifecycle.LeftFirst(gone)
		for i := 1; i < len(gone); i++ {
			a, b := gone[i-1].Replica.Descriptor(), gone[i].Replica.Descriptor()
			if !bytes.Equal(a.End, b.Start) {
				t.Errorf("what begins at %q is closed after what ends at %q", b.Start, a.End)
			}
		}
	})
}

// What is consumed soon after another merge is closed at once, and not with its log.
func TestConsumedIsClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.merge()
		s.splitAt("k150")
		s.right = s.partitions()[1].Id
		s.merge()
		synctest.Wait()
		for id := range s.c.nodes {
			id := id
			s.c.await("it is closed", lifecycle.BuryPause/4, func() bool {
				return s.hosted(id,
					s.right) == nil
			})
		}
	})
}

// A client that asks for what was merged is told what has consumed it.
func TestMergedAwayIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		old := s.of("k150")
		node, term := s.leads(s.right)
		s.merge()
		for _, after := range []time.Duration{0, time.Minute} {
			time.Sleep(after) // virtual
			q := get(old, term, "k150")
			r := s.c.ask(node, q)[q.Id]
			if e := r.GetError(); e.GetCode() != kvpb.ErrorCode_STALE_EPOCH || len(e.Partitions) == 0 ||
				e.Partitions[0].Id != s.left || e.Partitions[0].Generation != 3 {
				t.Errorf("%v", r)
			}
		}
	})
}

// An attempt that was taken back stays so: the left one does not consume a partition that was
// frozen for another epoch of it.
func TestMergeOfAnotherEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		node, _ := s.leads(s.left)
		left, right := s.hosted(node, s.left), s.hosted(node, s.right)
		s.freeze()
		if err := s.c.nodes[node].giveUpMerge(context.Background(), left,
			right.Replica.Descriptor().GetFrozen()); err != nil {
			t.Fatal(err)
		}
		target := proto.Clone(left.Replica.Descriptor()).(*clusterpb.Partition)
		target.End, target.Generation = right.Replica.Descriptor().End, 3
		if err := left.Replica.Reshape().Consume(context.Background(), target,
			right.Replica); err == nil {
			t.Error("it consumes what was frozen for an epoch that it had before")
		}
	})
}

// A right partition that was frozen by a node that makes the attempt no longer, because it has
// stopped or lost its leadership, is thawed: the one that leads the left partition takes the
// attempt back.
func TestFreezeWithoutAttemptEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		s.freeze()
		s.c.await("the attempt is taken back", 5*time.Minute, func() bool {
			node, _ := s.c.leaderOf(s.right)
			return node != 0 && s.hosted(node, s.right).Replica.Descriptor().GetFrozen() == nil
		})
		for i := range splitKeys {
			s.put(key(i), "after")
		}
		s.check()
	})
}

// brokenRight is a replica whose log cannot be read.
type brokenRight struct{ replica.Right }

func (brokenRight) Entries(uint64, uint64, func([]group.Entry) error) error {
	return errors.New("its log cannot be read")
}

// brokenSiblings have no right neighbour whose log can be read.
type brokenSiblings struct{ replica.Siblings }

func (b brokenSiblings) Right(right *clusterpb.Partition, index uint64) (replica.Right, error) {
	found, err := b.Siblings.Right(right, index)
	return brokenRight{found}, err
}

// A merge that cannot be applied on a node, for the right one's log cannot be read, fails the
// replica there, and holds nothing else up: the node stops, and starts again, and merges when the
// log can be read.
func TestMergeThatFailsHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMergeTest(t, 3)
		node, _ := s.leads(s.right)
		away := node%3 + 1
		m := s.c.nodes[away]
		m.shared.Siblings = brokenSiblings{m.shared.Siblings}
		begun := false
		h := s.hosted(node, s.right)
		s.c.network.lose(func(to uint64, m *peerpb.RaftMessage) bool {
			begun = begun || h.Replica.Descriptor().GetFrozen() != nil
			return begun && to == away && m.Group == s.right && m.Commit > 0 && len(m.Entries) == 0
		})
		s.merge()
		s.c.network.lose(nil)
		s.c.await("it fails, or has come to the freeze before", time.Minute, func() bool {
			left := s.hosted(away, s.left)
			return left.Group.Failed() != nil || left.Replica.Descriptor().GetGeneration() == 3
		})
		if s.hosted(away, s.left).Group.Failed() == nil {
			t.Fatal("the merge was applied without the log")
		}
		right := s.hosted(away, s.right)
		done := make(chan error, 1)
		go func() {
			at, _ := right.Replica.Applied()
			done <- splitrecovery.EachPiece(right.Group.Storage(), at, at+1, right.Replica.Apply)
		}()
		s.c.await("the right one goes on", time.Minute, func() bool { return len(done) > 0 })
		m.stop()
		m.start()
		s.whole(m)
		for i := range splitKeys {
			s.put(key(i), "after")
		}
		s.check()
	})
}

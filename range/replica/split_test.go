package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// splitAt is how a descriptor splits at a user key, into itself and another partition.
func splitAt(now *clusterpb.Partition, key string,
	child uint64) (left, right *clusterpb.Partition) {
	left, right = proto.Clone(now).(*clusterpb.Partition), proto.Clone(now).(*clusterpb.Partition)
	at := keys.InternalKey(now, []byte(key))
	left.Generation++
	left.End = at
	right.Id, right.Generation, right.Start, right.SplitFrom = child, left.Generation, at, now.Id
	right.SplitIndex = 0
	return left, right
}

// splitTest is a cluster whose leader commits and applies by itself.
type splitTest struct {
	*testCluster
	t        *testing.T
	sequence uint64
}

func newSplitTest(t *testing.T, replicas int) *splitTest {
	s := &splitTest{testCluster: newTestCluster(t, replicas, config.Limits{}), t: t}
	s.auto = true
	s.elect(s.members[0])
	s.members[0].catchUp(-1)
	return s
}

// ask has the leader answer a request of the parent's first generation.
func (s *splitTest) ask(q *kvpb.Request) *kvpb.Response {
	s.t.Helper()
	return s.askOf(s.members[0].replica, 1, q)
}

func (s *splitTest) askOf(r *Replica, generation uint64, q *kvpb.Request) *kvpb.Response {
	s.t.Helper()
	s.sequence++
	q.Sequence, q.Generation, q.Term = s.sequence, generation, r.Leadership().Term
	answers := make(chan *kvpb.Response, 1)
	r.Submit([]config.Pending{{Client: 1, Request: q,
		Reply: func(a *kvpb.Response) { answers <- a }, Arrived: time.Now()}})
	return <-answers
}

func putOf(key, value string) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_Put{
		Put: &kvpb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func getOf(key string) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}}
}

func deleteOf(key string) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_Delete{
		Delete: &kvpb.DeleteRequest{Key: []byte(key)}}}
}

func (s *splitTest) must(response *kvpb.Response) *kvpb.Response {
	s.t.Helper()
	if response.Error != nil {
		s.t.Fatalf("refused: %v", response.Error)
	}
	return response
}

// recount compares what a partition says that it holds with what is there.
func recount(t *testing.T, state *engine.State, id keys.PartitionID) storage.Recorded {
	t.Helper()
	r, found, err := storage.ReadRecorded(state, id)
	if err != nil || !found {
		t.Fatalf("partition %s is not there: %v", id, err)
	}
	is, err := storage.CountVersions(state, keys.PartitionSpan(r.Descriptor),
		func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if is != r.Stats {
		t.Errorf("partition %s holds %+v, and says %+v", id, is, r.Stats)
	}
	return r
}

func TestSplit(t *testing.T) {
	s := newSplitTest(t, 3)
	defer s.close()
	for i, key := range []string{"b", "c", "lzzz", "m", "m", "n", "x", "y"} {
		s.must(s.ask(putOf(key, fmt.Sprint("value ", i))))
	}
	s.must(s.ask(deleteOf("x")))
	leader := s.members[0].replica
	left, right := splitAt(leader.Descriptor(), "m", 200)
	var told []*clusterpb.Partition
	s.members[0].node.Siblings = toldSiblings{told: func(child *clusterpb.Partition,
		self keys.ReplicaID, how reshape.ChildState, leads bool) {
		if self != 1 || how != reshape.Created || !leads {
			t.Errorf("the child of replica %s is told of as %d, leads: %v", self, how, leads)
		}
		told = append(told, child)
	}}
	if err := leader.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 {
		t.Errorf("the node was told of %d births", len(told))
	}
	var base storage.Recorded
	for i, m := range s.members {
		m.catchUp(-1)
		parent := recount(t, m.state, 100)
		child := recount(t, m.state, 200)
		if !proto.Equal(parent.Descriptor, left) ||
			!proto.Equal(parent.Descriptor, m.replica.Descriptor()) {
			t.Errorf("the parent is %v", parent.Descriptor)
		}
		want := proto.Clone(right).(*clusterpb.Partition)
		want.SplitIndex = parent.Index
		if !proto.Equal(child.Descriptor, want) {
			t.Errorf("the child is %v", child.Descriptor)
		}
		if parent.Stats.LiveKeys != 3 || child.Stats.LiveKeys != 3 || child.Stats.Versions != 6 {
			t.Errorf("the parts hold %+v and %+v", parent.Stats, child.Stats)
		}
		if child.Index != reshape.ChildIndex || child.Term != reshape.ChildTerm {
			t.Errorf("the child begins at %d of term %d", child.Index, child.Term)
		}
		if i > 0 && child.Stats != base.Stats {
			t.Errorf("replicas of the child differ: %+v and %+v", child, base)
		}
		base = child
	}
	stale := s.ask(getOf("b")).GetError()
	if stale.GetCode() != kvpb.ErrorCode_STALE_EPOCH || stale.Partitions[0].Generation != 2 {
		t.Errorf("a request of the generation before is answered with %v", stale)
	}
	s.must(s.askOf(leader, 2, putOf("c", "again")))
	if e := s.askOf(leader, 2, putOf("x", "elsewhere")).GetError(); e == nil {
		t.Error("the parent takes a key of the child")
	}
	recount(t, s.members[0].state, 100)
}

// What is written and removed while the right part is counted counts too, on either side.
func TestTally(t *testing.T) {
	s := newSplitTest(t, 1)
	defer s.close()
	leader := s.members[0].replica
	for _, key := range []string{"b", "m", "n", "n", "x", "x"} {
		s.must(s.ask(putOf(key, "first")))
	}
	left, right := splitAt(leader.Descriptor(), "m", 200)
	account, err := leader.Reshape().BeginSplitStats(context.Background(), right)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Reshape().BeginSplitStats(context.Background(), right); err == nil {
		t.Error("two splits at a time are counted for")
	}
	for _, key := range []string{"c", "m", "o", "b"} {
		s.must(s.ask(putOf(key, "second")))
	}
	s.must(s.ask(deleteOf("n")))
	s.must(s.ask(&kvpb.Request{Command: &kvpb.Request_DeleteRange{
		DeleteRange: &kvpb.DeleteRangeRequest{Start: []byte("l"), End: []byte("n")}}}))
	s.physical.Advance(3 * time.Hour)
	result, err := leader.GC().Collect(context.Background(), s.members[0].node.Clock.Now())
	if err != nil || result.Versions == 0 {
		t.Fatalf("%d versions are collected: %v", result.Versions, err)
	}
	if err := account.Count(context.Background(), s.members[0].node.counting); err != nil {
		t.Fatal(err)
	}
	is, err := storage.CountVersions(s.members[0].state, keys.PartitionSpan(right), func() error {
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := account.Stats(); got != is {
		t.Errorf("the right part is said to hold %+v, and holds %+v", got, is)
	}
	leader.Reshape().EndSplitStats(account)
	if err := leader.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	recount(t, s.members[0].state, 100)
	recount(t, s.members[0].state, 200)
}

// childGroup is the group of a child that leads.
type childGroup struct {
	*member
	replica *Replica
	term    uint64
	index   uint64
}

func (g *childGroup) Propose(term uint64, data []byte) error {
	g.index++
	return g.replica.Apply([]group.Entry{{Index: g.index, Term: term, Data: bytes.Clone(data)}})
}
func (g *childGroup) Lease() (uint64, bool)            { return g.term, true }
func (g *childGroup) LeaseLeft() time.Duration         { return time.Hour }
func (g *childGroup) Leader() (keys.ReplicaID, uint64) { return 2, g.term }
func (g *childGroup) Appended() uint64                 { return g.index }

// The child writes above what the parent has served, although nothing but the split tells it.
func TestChildInheritsWhatWasServed(t *testing.T) {
	s := newSplitTest(t, 2)
	defer s.close()
	m := s.members[0]
	s.must(s.ask(putOf("x", "before")))
	// A read in the near future, as a faster clock has it.
	ahead := hlc.Timestamp{Wall: s.physical.Now() + int64(200*time.Millisecond)}
	q := getOf("x")
	q.GetGet().At = &kvpb.Timestamp{Wall: uint64(ahead.Wall)}
	s.must(s.ask(q))
	left, right := splitAt(m.replica.Descriptor(), "m", 200)
	if err := m.replica.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	// Another node leads the child, whose clock has heard of none of that.
	m = s.members[1]
	m.catchUp(-1)
	g := &childGroup{member: m, term: 6, index: reshape.ChildIndex}
	child, err := New(Config{Partition: right, ReplicaID: 2, State: m.state, Group: g, Node: m.node})
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	g.replica = child
	child.LeadershipChanged(group.Leadership{Term: 6, Leader: 2, IsLeader: true})
	g.index++
	if err := child.Apply([]group.Entry{{Index: g.index, Term: 6}}); err != nil {
		t.Fatal(err)
	}
	written := s.must(s.askOf(child, 2, putOf("x", "after"))).GetPut().GetVersion()
	at := hlc.Timestamp{Wall: int64(written.GetWall()), Logical: written.GetLogical()}
	if at.LessEq(ahead) {
		t.Errorf("the child writes at %s what the parent has served at %s", at, ahead)
	}
	recount(t, m.state, 200)
}

// What earlier leaders have served is to be closed by a split; a leader whose clock is not believed
// does not know it.
func TestNoSplitByAClockThatIsNotBelieved(t *testing.T) {
	s := newSplitTest(t, 1)
	defer s.close()
	m := s.members[0]
	m.untrusted = true
	s.elect(m)
	m.commit(-1)
	m.catchUp(-1)
	left, right := splitAt(m.replica.Descriptor(), "m", 200)
	err := m.replica.Reshape().Split(context.Background(), left, right)
	if !errors.Is(err, eval.ErrClockUnbelieved) {
		t.Fatal("it splits:", err)
	}
	m.untrusted = false
	s.must(s.ask(putOf("x", "value"))) // takes the low-water mark
	if err := m.replica.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
}

// A read that waits for the split, and a write that is queued behind it, are told both parts.
func TestSplitHoldsWhatComes(t *testing.T) {
	s := newSplitTest(t, 1)
	defer s.close()
	m := s.members[0]
	s.must(s.ask(putOf("x", "before")))
	s.auto = false
	left, right := splitAt(m.replica.Descriptor(), "m", 200)
	done := make(chan error, 1)
	go func() { done <- m.replica.Reshape().Split(context.Background(), left, right) }()
	for proposed := 0; proposed == 0; {
		m.mu.Lock()
		proposed = len(m.proposed)
		m.mu.Unlock()
	}
	answers := make(chan *kvpb.Response, 3)
	for i, q := range []*kvpb.Request{getOf("x"), getOf("b"), putOf("x", "during")} {
		q.Generation, q.Term, q.Sequence = 1, 1, uint64(100+i)
		m.replica.Submit([]config.Pending{{Client: 1, Request: q, Arrived: time.Now(),
			Reply: func(a *kvpb.Response) { answers <- a }}})
	}
	s.settle()
	early := len(answers)
	for range early {
		t.Errorf("answered while the split is under way: %v", <-answers)
	}
	m.commit(-1)
	m.catchUp(-1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for range 3 - early {
		if a := <-answers; a.GetError().GetCode() != kvpb.ErrorCode_STALE_EPOCH {
			t.Errorf("answered with %v", a)
		}
	}
}

// A follower whose snapshot is of before, and one that is sent the parent as it is now, come to the
// same.
func TestSnapshotNarrowerThanBefore(t *testing.T) {
	s := newSplitTest(t, 2)
	defer s.close()
	leader, follower := s.members[0], s.members[1]
	for _, key := range []string{"b", "m", "x"} {
		s.must(s.ask(putOf(key, "first")))
	}
	follower.catchUp(-1)
	left, right := splitAt(leader.replica.Descriptor(), "m", 200)
	if err := leader.replica.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	s.must(s.askOf(leader.replica, 2, putOf("c", "second")))
	staged := stream(t, leader.replica, follower.replica)
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
	recount(t, follower.state, 100)
	n, err := storage.CountVersions(follower.state, keys.PartitionSpan(right),
		func() error { return nil })
	if err != nil || n.Versions != 0 {
		t.Errorf("%d versions are in no partition's span: %v", n.Versions, err)
	}
	_, a, _ := leader.replica.Checksum()
	if _, b, err := follower.replica.Checksum(); err != nil || a != b {
		t.Errorf("the replicas differ: %v", err)
	}
	// The child is filled by a snapshot of its own, beside the parent.
	if other := follower.node.Spans.Overlapping(200, keys.PartitionSpan(right)); other != 0 {
		t.Errorf("partition %s is in the child's way", other)
	}
}

// stream sends a snapshot from one replica to another.
func stream(t *testing.T, from, to *Replica) group.Staged {
	t.Helper()
	snap, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var sent bytes.Buffer
	if err := snap.Write(context.Background(), &sent); err != nil {
		t.Fatal(err)
	}
	staged, err := to.StageSnapshot(context.Background(), snap.Index(), snap.Term(), &sent)
	if err != nil {
		t.Fatal(err)
	}
	return staged
}

// A snapshot that would bring keys which another replica here has is refused: that one has yet to
// split.
func TestSnapshotOverAnotherReplica(t *testing.T) {
	s := newSplitTest(t, 2)
	defer s.close()
	leader, follower := s.members[0], s.members[1]
	s.must(s.ask(putOf("x", "first")))
	follower.catchUp(-1)
	left, right := splitAt(leader.replica.Descriptor(), "m", 200)
	if err := leader.replica.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	open := func(m *member, id keys.ReplicaID, empty bool) *Replica {
		r, err := New(Config{Partition: right, ReplicaID: id, State: m.state, Group: m, Node: m.node,
			Empty: empty})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	child, newcomer := open(leader, 1, false), open(follower, 3, true)
	defer child.Close()
	defer newcomer.Close()
	snap, err := child.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	var sent bytes.Buffer
	if err := snap.Write(context.Background(), &sent); err != nil {
		t.Fatal(err)
	}
	if _, err := newcomer.StageSnapshot(context.Background(), snap.Index(), snap.Term(),
		bytes.NewReader(sent.Bytes())); err == nil {
		t.Fatal("taken, although the parent's replica has the keys")
	}
	// When that applies the split, it makes no replica of the child: a newer one is here.
	follower.node.Siblings = newerSiblings{}
	follower.catchUp(-1)
	n, err := storage.CountVersions(follower.state, keys.PartitionSpan(right),
		func() error { return nil })
	if err != nil || n.Versions != 0 {
		t.Errorf("%d versions are left of what went elsewhere: %v", n.Versions, err)
	}
	staged, err := newcomer.StageSnapshot(context.Background(), snap.Index(), snap.Term(), &sent)
	if err != nil {
		t.Fatal(err)
	}
	if err := staged.Install(); err != nil {
		t.Fatal(err)
	}
	recount(t, follower.state, 100)
	recount(t, follower.state, 200)
}

// Splits that are not of the partition as it is change nothing.
func TestSplitsThatDoNotFit(t *testing.T) {
	s := newSplitTest(t, 3)
	defer s.close()
	r := s.members[0].replica
	s.must(s.ask(putOf("x", "first")))
	index, _ := r.Applied()
	for name, change := range map[string]func(left, right *clusterpb.Partition){
		"a gap": func(l, _ *clusterpb.Partition) {
			l.End = append(slices.Clone(l.End[:4]), 'k')
		},
		"an overlap": func(l, _ *clusterpb.Partition) {
			l.End = append(slices.Clone(l.End[:4]), 'o')
		},
		"beyond the end": func(_, c *clusterpb.Partition) {
			c.End = append(slices.Clone(c.End[:4]), '~')
		},
		"generation":         func(l, _ *clusterpb.Partition) { l.Generation = 3 },
		"child's generation": func(_, c *clusterpb.Partition) { c.Generation = 1 },
		"membership":         func(l, _ *clusterpb.Partition) { l.Membership = 2 },
		"another keyspace":   func(_, c *clusterpb.Partition) { c.Keyspace = 8 },
		"no parent":          func(_, c *clusterpb.Partition) { c.SplitFrom = 0 },
		"another parent":     func(_, c *clusterpb.Partition) { c.SplitFrom = 99 },
		"its own id":         func(_, c *clusterpb.Partition) { c.Id = 100 },
		"another replica":    func(_, c *clusterpb.Partition) { c.Replicas[0].Replica = 9 },
		"fewer replicas":     func(_, c *clusterpb.Partition) { c.Replicas = c.Replicas[:2] },
		"replica that is none": func(l, _ *clusterpb.Partition) {
			l.Replicas[2].Role = clusterpb.ReplicaRole_LEARNER
		},
	} {
		left, right := splitAt(r.Descriptor(), "m", 200)
		change(left, right)
		if err := r.Reshape().Split(context.Background(), left, right); err == nil {
			t.Errorf("%s: it splits", name)
		}
	}
	if now, _ := r.Applied(); now != index {
		t.Errorf("something was proposed: index %d after %d", now, index)
	}
}

// A read that was admitted before the split, and reads after it, is refused: what has split off may
// have left the node by then.
func TestReadAcrossSplit(t *testing.T) {
	s := newSplitTest(t, 1)
	defer s.close()
	m := s.members[0]
	s.must(s.ask(putOf("x", "before")))
	old := m.replica.Descriptor()
	left, right := splitAt(old, "m", 200)
	if err := m.replica.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	span := keys.PartitionSpan(right)
	if err := storage.Destroy(context.Background(), m.state, storage.Gone{ID: 200,
		Span: &span}); err != nil {
		t.Fatal(err)
	}
	q := getOf("x")
	q.Generation, q.Term = 1, 1
	answers := make(chan *kvpb.Response, 1)
	m.replica.reads.ServePlaced(config.Pending{Client: 1, Request: q, Arrived: time.Now(),
		Reply: func(a *kvpb.Response) { answers <- a }}, old, m.node.Clock.Now())
	if a := <-answers; a.GetError().GetCode() != kvpb.ErrorCode_STALE_EPOCH {
		t.Errorf("answered with %v", a)
	}
}

// The locks of the right part are the child's, and not the parent's any more, on leaders and
// followers.
func TestLocksGoWithTheirKeys(t *testing.T) {
	s := newSplitTest(t, 2)
	defer s.close()
	id := bytes.Repeat([]byte{7}, 16)
	for _, key := range []string{"b", "x"} {
		s.must(s.ask(&kvpb.Request{Session: wire.ToTimestamp(s.members[0].node.Clock.Now()),
			Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
				Transaction: &kvpb.Transaction{Id: id, Anchor: []byte("b"), Keyspace: 7,
					Begun:   wire.ToTimestamp(hlc.Timestamp{Wall: epoch}),
					Started: wire.ToTimestamp(hlc.Timestamp{Wall: epoch})},
				Mutations: []*kvpb.Mutation{{Kind: kvpb.Mutation_PUT, Key: []byte(key)}}}}}))
	}
	leader := s.members[0].replica
	left, right := splitAt(leader.Descriptor(), "m", 200)
	if err := leader.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.members {
		m.catchUp(-1)
		child, err := New(Config{Partition: right, ReplicaID: m.id, State: m.state, Group: m,
			Node: m.node})
		if err != nil {
			t.Fatal(err)
		}
		if p, c := m.replica.Intents(), child.Intents(); p != 1 || c != 1 {
			t.Errorf("replica %s: %d locks in the parent, %d in the child", m.id, p, c)
		}
		child.Close()
	}
}

// A retry of a DeleteRange that was executed before the split says how far that reached: what came
// into the right part since is not deleted again.
func TestDeleteRangeAcrossSplit(t *testing.T) {
	s := newSplitTest(t, 1)
	defer s.close()
	m := s.members[0]
	for _, key := range []string{"b", "x"} {
		s.must(s.ask(putOf(key, "before")))
	}
	remove := func(end string) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_DeleteRange{
			DeleteRange: &kvpb.DeleteRangeRequest{Start: []byte("b"), End: []byte(end)}}}
	}
	session := wire.ToTimestamp(m.node.Clock.Now())
	q := remove("y")
	q.Session = session
	if r := s.must(s.ask(q)).GetDeleteRange(); r.Deleted != 2 || r.DoneTo != nil {
		t.Fatalf("%v", r)
	}
	left, right := splitAt(m.replica.Descriptor(), "m", 200)
	if err := m.replica.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	s.sequence-- // the same request again, as far as the left part has it
	q = remove("m")
	q.Session = session
	r := s.must(s.askOf(m.replica, 2, q)).GetDeleteRange()
	if r.Deleted != 2 || r.More || string(r.DoneTo) != "y" {
		t.Errorf("the retry is answered with %v", r)
	}
}

// toldSiblings passes on what a replica tells of a split.
type toldSiblings struct {
	NoSiblings
	told func(child *clusterpb.Partition, self keys.ReplicaID, how reshape.ChildState, leads bool)
}

func (s toldSiblings) Split(child *clusterpb.Partition, self keys.ReplicaID,
	how reshape.ChildState, leads bool) {
	s.told(child, self, how, leads)
}

// newerSiblings have a newer replica of each child.
type newerSiblings struct{ NoSiblings }

func (newerSiblings) ChildState(*clusterpb.Partition, keys.ReplicaID) (reshape.ChildState, error) {
	return reshape.Elsewhere, nil
}

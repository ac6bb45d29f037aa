package replica

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is where manual clocks start, in nanoseconds.
const epoch = int64(1_000_000_100 * time.Second)

// testPartition is partition 100 of keyspace 7, [a, z), on nodes 11, 12, ...
func testPartition(replicas int) *clusterpb.Partition {
	prefix := keys.KeyspacePrefix(7)
	p := &clusterpb.Partition{
		Id: 100, Keyspace: 7, Generation: 1, Membership: 1, PrefixLength: keys.KeyspacePrefixLength,
		Start: append(bytes.Clone(prefix), 'a'), End: append(bytes.Clone(prefix), 'z'),
	}
	for i := 1; i <= replicas; i++ {
		p.Replicas = append(p.Replicas, &clusterpb.Replica{Node: uint64(10 + i), Replica: uint64(i)})
	}
	return p
}

// failer is what the harness needs of a test.
type failer interface {
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// testCluster is a partition's replicas around one log, which the test commits to by hand.
type testCluster struct {
	t        failer
	physical *hlc.Manual
	members  []*member
	full     bool
	quota    testQuotas
	share    group.Share
	// gone are the clients that are not connected any more.
	gone map[uint64]bool
	// limits are those of every keyspace but 8.
	limits txn.Limits
	// now is what physical clocks show instead of physical, if it is set.
	now func() int64

	mu sync.Mutex
	// log is what is committed; entry i has index i+1.
	log  []group.Entry
	term uint64
	// lease says whether the leader holds its lease.
	lease bool
	// leaseLeft is for how long, while it does.
	leaseLeft time.Duration
	// appended is the last index of every log, as Group.Appended returns it.
	appended uint64
	// leaseAsked is called after the lease has been looked at, if it is set.
	leaseAsked func()
	// waited is by how much the time by which waiting is measured is ahead.
	waited time.Duration
	// auto commits and applies on the leader what is proposed, at once.
	auto bool
}

// member is one replica with its own state database, and its group.
type member struct {
	cluster *testCluster
	id      keys.ReplicaID
	fs      *vfs.MemFS
	dir     string
	node    *Node
	pusher  *testPusher
	// settled are the transactions whose participants answer, and asked are those that they were
	// asked about.
	settled  map[string]bool
	resolved []string
	skew     time.Duration
	// slept is for how long the monotonic clock has stood still.
	slept time.Duration
	// untrusted is set while the server's clock is not believed.
	untrusted bool
	state     *engine.State
	replica   *Replica

	mu         sync.Mutex
	leadership group.Leadership
	// proposed is what has been proposed and is neither committed nor dropped.
	proposed []group.Entry
	reads    []func(error)
	woken    int
	// transfers are the replicas that the group was asked to hand over to.
	transfers []keys.ReplicaID
	// deposed: it thinks that it leads, and has no lease.
	deposed bool
}

var _ config.Group = (*member)(nil)

// testServer is the server and the disks of a member: what a test has set.
type testServer struct {
	config.Alone
	member *member
}

func (s testServer) ClockTrusted() bool { return !s.member.untrusted }

func (s testServer) DiskFull() bool { return s.member.cluster.full }

func (s testServer) RoomShare() group.Share { return s.member.cluster.share }

func (s testServer) TransactionLimits(id keys.KeyspaceID) txn.Limits {
	if id == 8 {
		return txn.Limits{Age: txn.MaxLimit, Idle: time.Second}
	}
	return s.member.cluster.limits
}

// testClients are gone if a test has said so.
type testClients struct {
	NoClients
	cluster *testCluster
}

func (c testClients) Gone(client uint64) bool { return c.cluster.gone[client] }

// testQuotas are the quotas of all keyspaces, which are reached or not.
type testQuotas struct{ reached bool }

func (q *testQuotas) Full(keys.KeyspaceID) bool     { return q.reached }
func (q *testQuotas) Refuse(keys.KeyspaceID) string { return "the quota is reached" }

func newTestCluster(t failer, replicas int, limits config.Limits) *testCluster {
	limits.VacantRun = cmp.Or(limits.VacantRun, 2) // so that short runs of deleted keys are remembered
	c := &testCluster{t: t, physical: hlc.NewManual(epoch), lease: true, leaseLeft: time.Hour}
	for i := range replicas {
		m := &member{cluster: c, id: keys.ReplicaID(i + 1), fs: vfs.NewCrashableMem(), dir: "state"}
		m.pusher = &testPusher{}
		m.node = &Node{
			Node: config.Node{
				Pusher: m.pusher,
				Quotas: &c.quota,
				Clock:  hlc.NewClock(m, hlc.FixedBound(250*time.Millisecond)),
				Limits: limits,
				Server: testServer{member: m},
				Disks:  testServer{member: m},
			},
			Resolver: m,
			Random:   func() uint64 { return 0 },
			Clients:  testClients{cluster: c},
		}
		m.node.Hooks.LockTime = c.lockTime
		if err := m.node.Prepare(); err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, m)
		m.open(replicas)
	}
	return c
}

func (m *member) setClock(c *hlc.Clock) { m.node.Clock, m.node.Waits.Clock = c, c }

// Now is the member's physical clock.
func (m *member) Now() int64 {
	now := m.cluster.now
	if now == nil {
		now = m.cluster.physical.Now
	}
	return now() + int64(m.skew)
}

// monotonic is the member's monotonic clock.
func (m *member) monotonic() int64 { return m.cluster.physical.Now() - int64(m.slept) }

func (m *member) open(replicas int) {
	t := m.cluster.t
	state, err := engine.OpenState(engine.Options{FS: m.fs, Dir: m.dir, CacheBytes: 1 << 20,
		MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	m.state = state
	r, err := New(Config{Partition: testPartition(replicas), ReplicaID: m.id, State: state, Group: m,
		Node: m.node})
	if err != nil {
		t.Fatal(err)
	}
	m.replica = r
}

func (m *member) close() {
	m.failReads(errors.New("stopped"))
	if err := m.replica.Close(); err != nil {
		m.cluster.t.Fatal(err)
	}
	if err := m.state.Close(); err != nil {
		m.cluster.t.Fatal(err)
	}
}

func (c *testCluster) close() {
	for _, m := range c.members {
		m.close()
		m.node.Pool.Close()
		m.node.Long.Close()
	}
}

// Submit takes requests all the way, as a node does that has requests for no other replica.
func (r *Replica) Submit(requests []config.Pending) {
	queued, ok := r.Take(requests)
	if !ok {
		return
	}
	if queued {
		r.Evaluate(nil)
	}
	r.Serve(requests, time.Now())
}

// settle waits until nothing runs.
func (c *testCluster) settle() {
	for _, m := range c.members {
		m.node.Pool.Wait()
		m.node.Long.Wait()
		m.node.Pool.Wait()
	}
}

// Propose implements Group.
func (m *member) Propose(term uint64, data []byte) error {
	return m.propose(group.Entry{Term: term, Data: data})
}

// ProposeChange implements Group.
func (m *member) ProposeChange(term uint64, data []byte, _ group.Configuration) error {
	return m.propose(group.Entry{Term: term, Data: data, Change: true})
}

func (m *member) propose(e group.Entry) error {
	m.mu.Lock()
	if !m.leadership.IsLeader || m.leadership.Term != e.Term {
		m.mu.Unlock()
		return nil // dropped
	}
	m.proposed = append(m.proposed, e)
	m.mu.Unlock()
	m.cluster.mu.Lock()
	auto := m.cluster.auto
	m.cluster.mu.Unlock()
	if auto {
		m.commit(-1)
		m.catchUp(-1)
	}
	return nil
}

func (m *member) ReadIndex(done func(error)) {
	m.mu.Lock()
	m.reads = append(m.reads, done)
	m.mu.Unlock()
}

// failReads answers what waits for a read index.
func (m *member) failReads(err error) {
	for {
		m.mu.Lock()
		reads := m.reads
		m.reads = nil
		m.mu.Unlock()
		if len(reads) == 0 {
			return
		}
		for _, done := range reads {
			done(err)
		}
		m.cluster.settle()
	}
}

func (m *member) Lease() (uint64, bool) {
	m.mu.Lock()
	l := m.leadership
	m.mu.Unlock()
	m.cluster.mu.Lock()
	leased := l.IsLeader && m.cluster.lease && !m.deposed
	asked := m.cluster.leaseAsked
	m.cluster.mu.Unlock()
	if asked != nil {
		asked()
	}
	return l.Term, leased
}

func (m *member) LeaseLeft() time.Duration {
	if _, leased := m.Lease(); !leased {
		return 0
	}
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return m.cluster.leaseLeft
}

func (m *member) Appended() uint64 {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	return m.cluster.appended
}

// Reader implements Finder.
func (m *member) Reader(uint64) (*read.Reader, *kvpb.Error) { return m.replica.reads, nil }

func (m *member) Leader() (keys.ReplicaID, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leadership.Leader, m.leadership.Term
}

func (m *member) Wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.woken++
}

// TransferLeader implements Group: it only notes what it is told. The test elects.
func (m *member) TransferLeader(_ uint64, to keys.ReplicaID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transfers = append(m.transfers, to)
}

// commit moves the first n proposals (-1: all) to the log.
func (m *member) commit(n int) {
	m.mu.Lock()
	if n < 0 || n > len(m.proposed) {
		n = len(m.proposed)
	}
	entries := m.proposed[:n]
	m.proposed = append([]group.Entry(nil), m.proposed[n:]...)
	m.mu.Unlock()
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	for _, e := range entries {
		e.Index = uint64(len(m.cluster.log) + 1)
		m.cluster.log = append(m.cluster.log, e)
	}
}

// drop loses the first n proposals (-1: all).
func (m *member) drop(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < 0 || n > len(m.proposed) {
		n = len(m.proposed)
	}
	m.proposed = append([]group.Entry(nil), m.proposed[n:]...)
}

// catchUp applies what is committed, n entries at most (-1: all), each chunk of entries in one
// call. A member that does not know that it is deposed has nothing of a later term: its group would
// have told it before (group.StateMachine).
func (m *member) catchUp(n int, chunk ...int) {
	index, _ := m.replica.Applied()
	m.mu.Lock()
	l := m.leadership
	m.mu.Unlock()
	m.cluster.mu.Lock()
	entries := append([]group.Entry(nil), m.cluster.log[index:]...)
	m.cluster.mu.Unlock()
	if i := slices.IndexFunc(entries, func(e group.Entry) bool {
		return l.IsLeader && l.Term < e.Term
	}); i >= 0 {
		entries = entries[:i]
	}
	if n >= 0 && n < len(entries) {
		entries = entries[:n]
	}
	for len(entries) > 0 {
		k := len(entries)
		if len(chunk) > 0 {
			k = min(k, chunk[0])
		}
		// Data may be aliased only until Apply returns: take it away then.
		copies := make([]group.Entry, k)
		for i, e := range entries[:k] {
			copies[i] = e
			copies[i].Data = bytes.Clone(e.Data)
		}
		if err := m.replica.Apply(copies); err != nil {
			m.cluster.t.Errorf("replica %s: %v", m.id, err)
			return
		}
		for i := range copies {
			for j := range copies[i].Data {
				copies[i].Data[j] = 0xdd
			}
		}
		entries = entries[k:]
	}
}

// tell changes a member's leadership.
func (m *member) tell(l group.Leadership) {
	m.mu.Lock()
	m.leadership = l
	m.mu.Unlock()
	m.replica.LeadershipChanged(l)
}

// elect makes a member lead at the next term: its log has everything committed, and what others
// proposed is lost.
func (c *testCluster) elect(leader *member) {
	c.mu.Lock()
	c.term++
	term := c.term
	c.mu.Unlock()
	for _, m := range c.members {
		m.drop(-1)
		if m != leader {
			m.tell(group.Leadership{Term: term, Leader: leader.id})
		}
	}
	leader.tell(group.Leadership{Term: term, Leader: leader.id, IsLeader: true})
	c.mu.Lock()
	c.log = append(c.log, group.Entry{Index: uint64(len(c.log) + 1), Term: term})
	c.mu.Unlock()
}

// kept is a copy that is good for longer than until the reply returns.
func kept(r *kvpb.Response) *kvpb.Response { return proto.Clone(r).(*kvpb.Response) }

// inbox collects responses.
type inbox struct {
	mu        sync.Mutex
	responses []*kvpb.Response
}

func (i *inbox) reply(r *kvpb.Response) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.responses = append(i.responses, kept(r))
}

// take returns what came since the last call, by request.
func (i *inbox) take() []*kvpb.Response {
	i.mu.Lock()
	defer i.mu.Unlock()
	responses := i.responses
	i.responses = nil
	sort.SliceStable(responses, func(a, b int) bool { return responses[a].Id < responses[b].Id })
	return responses
}

// transfer sends a snapshot from one member to another.
func transfer(from, to *member) error {
	s, err := from.replica.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	var stream bytes.Buffer
	if err := s.Write(context.Background(), &stream); err != nil {
		return err
	}
	staged, err := to.replica.StageSnapshot(context.Background(), s.Index(), s.Term(), &stream)
	if err != nil {
		return err
	}
	return staged.Install()
}

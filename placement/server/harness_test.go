package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = 0xc1

// core is the members of a core that replicate perfectly: every proposal is applied by all at once.
// At one numbered proposal the leader can lose its leadership, before the proposal or right after
// it.
type core struct {
	t       testing.TB
	network *memnet.Network
	dialers []*client.Dialer

	mu     sync.Mutex
	term   uint64
	leader *member
	// jumped is by how much the clock of each member is wrong, by its id, and by how much those of
	// the nodes are, by the number they are registered with; a node that distrusts its clock says
	// so.
	jumped, jumpedNodes map[int]time.Duration
	distrusting         map[int]bool
	index               uint64 // of the last entry
	members             []*member
	proposed            int
	crashAt             int  // 0: never
	applied             bool // the proposal at which the leader falls is applied

	// holds: the proposals that it says true of are not made until release.
	holds func(data []byte) bool
	held  []func()

	// silent are the members that do not answer, lagging those that lack the newest state, hellos
	// what servers say of themselves, by address.
	silent, lagging map[uint64]bool
	hellos          map[string]*clusterpb.BootstrapHello
	// helloTakes is how long a server takes to say so, or does not answer.
	helloTakes time.Duration
	transfers  int
	// woken are the nodes that were told of orders, in order; a call waits while wakes has no room.
	woken []keys.NodeID
	wakes chan struct{}
	// gone are the members of which nothing is heard.
	gone map[uint64]bool
	// configure changes the configuration with which members start; nil: it stays.
	configure func(*Config)
	// second is the coordination store of the same members; nil: there is none.
	second *core
	// changed says of each entry of the log, in order, whether it is a change of the configuration.
	changed []bool
}

type member struct {
	core    *core
	id      keys.ReplicaID
	address string
	state   *engine.State
	store   *store.Store
	server  *Server
	// open makes store and server on what is in the state.
	open    func()
	grpc    *rpc.Server
	serving sync.WaitGroup
}

func newCore(t testing.TB, members int, change func(*store.Config)) *core {
	return newCoreOn(t, func() vfs.FS { return vfs.NewMem() }, "state", members, change)
}

// newCoreOn makes a core whose members keep their state in a directory of a filesystem each.
func newCoreOn(t testing.TB, fs func() vfs.FS, dir string, members int,
	change func(*store.Config)) *core {
	c := &core{t: t, term: 1, network: memnet.New(), silent: map[uint64]bool{},
		lagging: map[uint64]bool{}, hellos: map[string]*clusterpb.BootstrapHello{},
		jumped: map[int]time.Duration{}, jumpedNodes: map[int]time.Duration{},
		distrusting: map[int]bool{}, gone: map[uint64]bool{}}
	var list []*clusterpb.CoreMember
	for i := range members {
		x := &clusterpb.CoreMember{Address: fmt.Sprintf("core%d:1", i+1), Replica: uint64(i + 1),
			Server: uint64(i + 1)}
		list = append(list, x)
		// Servers ask one another as soon as they are there.
		c.hellos[x.Address] = &clusterpb.BootstrapHello{Server: x.Server, Address: x.Address,
			Founded: true, Changes: true}
	}
	logger := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	for i := range members {
		m := &member{core: c, id: keys.ReplicaID(i + 1), address: list[i].Address}
		var err error
		if m.state, err = engine.OpenState(engine.Options{FS: fs(), Dir: dir,
			CacheBytes: 1 << 20, MemTableBytes: 4 << 20}); err != nil {
			t.Fatal(err)
		}
		config := store.Config{State: m.state, Group: m, Random: rand.Reader, Logger: logger,
			Founding: membership.StoredMembers(list)}
		if change != nil {
			change(&config)
		}
		m.open = func() {
			if m.store, err = store.New(config); err != nil {
				t.Fatal(err)
			}
			config := Config{Store: m.store, Cluster: testCluster, Members: list,
				Membership: membership.Config{Group: m, Coordination: true,
					Servers: testServers{c}, Peers: testPeers{c}, Own: noHealth{}},
				Wake: c.wake, Physical: m,
				Logger: logger.With("member", m.address)}
			if c.configure != nil {
				c.configure(&config)
			}
			if m.server, err = New(config); err != nil {
				t.Fatal(err)
			}
		}
		m.open()
		c.members = append(c.members, m)
	}
	for _, m := range c.members {
		m.serve()
	}
	return c
}

// testServers are the servers of a core, as a member asks them.
type testServers struct{ *core }

func (s testServers) Hello(ctx context.Context,
	address string) (*clusterpb.BootstrapHello, error) {
	return s.hello(ctx, address)
}

func (testServers) Inform(context.Context, string, *clusterpb.CoreMembers) error { return nil }

func (testServers) Check(context.Context, string) (*clusterpb.MemberHealth, error) {
	return nil, status.Error(codes.Unimplemented, "it says nothing of its health")
}

// testPeers are silent if the test has said so, and averse to nothing.
type testPeers struct{ *core }

func (p testPeers) Down(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone[id]
}

func (testPeers) LeaderAverse(uint64) bool { return false }

// noHealth is the health of a server that knows nothing of it.
type noHealth struct{}

func (noHealth) NotReady() []string         { return nil }
func (noHealth) CoordinationErr() error     { return nil }
func (noHealth) Disk() membership.DiskState { return membership.DiskState{} }
func (noHealth) Delays() membership.Delays  { return membership.Delays{} }

// Now is the clock of a member.
func (m *member) Now() int64 {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	return time.Now().Add(m.core.jumped[int(m.id)]).UnixNano()
}

// jump has the clock of a member or of a node be wrong from now on.
func (c *core) jump(clocks map[int]time.Duration, which int, by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clocks[which] = by
}

// nodeClock is what the node of a number says that its clock shows.
func (c *core) nodeClock(n int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.distrusting[n] {
		return 0
	}
	return uint64(time.Now().Add(c.jumpedNodes[n]).UnixNano())
}

func (m *member) serve() {
	l, err := m.core.network.Listen(m.address)
	if err != nil {
		m.core.t.Fatal(err)
	}
	m.grpc = rpc.NewServer(rpc.ServerConfig{})
	clusterpb.RegisterCoreServer(m.grpc, m.server)
	clusterpb.RegisterCoordinationServer(m.grpc,
		coordination.NewService(func(cluster uint64) (*store.Store, *store.Store, error) {
			return m.server.Parts(cluster)
		}))
	clusterpb.RegisterClusterServer(m.grpc, NewClusterService(ClusterConfig{
		Core: func() *Server { return m.server }, Client: m.core.client(m.address),
		Status: func() *clusterpb.StatusResponse {
			return &clusterpb.StatusResponse{Cluster: testCluster, Ready: true}
		},
	}))
	m.serving.Go(func() { _ = m.grpc.Serve(l) })
}

// addresses lists the members.
func (c *core) addresses() []string {
	var list []string
	for _, m := range c.members {
		list = append(list, m.address)
	}
	return list
}

// client makes a Client on some host of the network, which knows these addresses, or all.
func (c *core) client(from string, seeds ...string) *coreclient.Client {
	if len(seeds) == 0 {
		seeds = c.addresses()
	}
	return c.clientWith(from, coreclient.Config{Core: seeds})
}

// clientWith is client with a configuration, which gets its connections from the network.
func (c *core) clientWith(from string, config coreclient.Config) *coreclient.Client {
	d := client.NewDialer(client.DialerConfig{Dial: c.network.Dialer(from)})
	c.dialers = append(c.dialers, d)
	config.Conn = d.Conn
	return coreclient.New(config)
}

func (c *core) close() {
	for _, d := range c.dialers {
		if err := d.Close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, m := range c.members {
		m.grpc.Stop()
		m.serving.Wait()
		m.server.Close()
	}
	c.elect(nil)
	if c.second != nil {
		c.second.elect(nil)
		for _, m := range c.second.members {
			m.store.Close()
		}
	}
	for _, m := range c.members {
		m.store.Close()
		if err := m.state.Close(); err != nil {
			c.t.Error(err)
		}
	}
}

// reconfigure starts all members again with another configuration; the first one leads then.
func (c *core) reconfigure(change func(*Config)) {
	c.configure = change
	c.restart()
	c.elect(c.members[0])
}

// restart stops all members and starts them again; none leads then.
func (c *core) restart() {
	for _, m := range c.members {
		m.grpc.Stop()
		m.serving.Wait()
		m.server.Close()
	}
	c.elect(nil)
	for _, m := range c.members {
		m.store.Close()
		m.open()
		m.serve()
	}
}

// elect makes a member the leader of a new term; nil: none.
func (c *core) elect(leader *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.electLocked(leader)
}

func (c *core) electLocked(leader *member) {
	c.leader = leader
	c.term++
	var id keys.ReplicaID
	if leader != nil {
		id = leader.id
	}
	for _, m := range c.members {
		m.store.LeadershipChanged(group.Leadership{Term: c.term, Leader: id, IsLeader: m == leader})
	}
	if leader != nil {
		c.appendLocked(nil)
	}
}

func (c *core) appendLocked(data []byte) { c.addLocked(group.Entry{Data: data}) }

func (c *core) addLocked(entry group.Entry) {
	c.index++
	entry.Index, entry.Term = c.index, c.term
	c.changed = append(c.changed, entry.Change)
	for _, m := range c.members {
		if err := m.store.Apply([]group.Entry{entry}); err != nil {
			c.t.Errorf("apply: %v", err)
		}
	}
}

func (m *member) Propose(term uint64, data []byte) error {
	return m.propose(term, group.Entry{Data: data})
}

func (m *member) ProposeChange(term uint64, data []byte, next group.Configuration) error {
	if !next.Electable(m.id) {
		m.core.t.Errorf("member %s proposes to leave the core while it leads: %s", m.id, &next)
	}
	return m.propose(term, group.Entry{Data: data, Change: true})
}

// successorLocked is a voter beside a member.
func (c *core) successorLocked(m *member) *member {
	for i := range c.members {
		next := c.members[(int(m.id)+i)%len(c.members)]
		if now := m.store.Configuration(); next != m && now.Electable(next.id) {
			return next
		}
	}
	return m
}

func (m *member) propose(term uint64, e group.Entry) error {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != m || c.term != term {
		return nil
	}
	if c.holds != nil && c.holds(e.Data) {
		c.held = append(c.held, func() { _ = m.propose(term, e) })
		return nil
	}
	c.proposed++
	falls := c.proposed == c.crashAt
	next := c.successorLocked(m)
	if falls && !c.applied {
		c.electLocked(next)
		return nil
	}
	if falls {
		// The proposal is committed, and its proposer does not get to know.
		c.leader = nil
		for _, m := range c.members {
			m.store.LeadershipChanged(group.Leadership{Term: c.term})
		}
	}
	c.addLocked(e)
	if falls {
		c.electLocked(next)
	}
	return nil
}

func (m *member) Applied() uint64 {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	return m.core.index
}

func (m *member) Followers(report func(map[keys.ReplicaID]group.Progress)) {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != m {
		report(nil)
		return
	}
	all := map[keys.ReplicaID]group.Progress{}
	for _, x := range m.store.Members().Members {
		if x.Replica != uint64(m.id) {
			all[keys.ReplicaID(x.Replica)] = group.Progress{Match: c.index,
				Active: !c.silent[x.Replica], Snapshot: c.lagging[x.Replica]}
		}
	}
	report(all)
}

func (m *member) TransferLeader(term uint64, to keys.ReplicaID) {
	c := m.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader != m || c.term != term {
		return
	}
	c.transfers++
	for _, next := range c.members {
		if next.id == to {
			c.electLocked(next)
		}
	}
}

func (c *core) hello(_ context.Context, address string) (*clusterpb.BootstrapHello, error) {
	c.mu.Lock()
	takes := c.helloTakes
	c.mu.Unlock()
	time.Sleep(takes) // virtual
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hellos[address]; h != nil {
		return proto.Clone(h).(*clusterpb.BootstrapHello), nil
	}
	return nil, errors.New("connection refused")
}

func (c *core) wake(ctx context.Context, _ string, node keys.NodeID) error {
	c.mu.Lock()
	c.woken = append(c.woken, node)
	wakes := c.wakes
	c.mu.Unlock()
	if wakes == nil {
		return nil
	}
	select {
	case <-wakes:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (m *member) ReadIndex(done func(error)) {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	if m.core.leader == nil {
		done(errors.New("no quorum"))
		return
	}
	done(nil)
}

func (m *member) Committed() uint64 { return m.Applied() }

func (m *member) Lease() (uint64, bool) {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	return m.core.term, m.core.leader == m
}

// hold has the proposals that name a key wait for release, as if their proposer were slow.
func (c *core) hold(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds = func(data []byte) bool { return bytes.Contains(data, []byte(key)) }
}

// holding says whether a proposal waits.
func (c *core) holding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held) > 0
}

func (c *core) release() {
	c.mu.Lock()
	held := c.held
	c.held, c.holds = nil, nil
	c.mu.Unlock()
	for _, propose := range held {
		propose()
	}
}

// register makes a node, and keeps it alive until the function that it returns is called.
func (c *core) register(
	client *coreclient.Client, n int, locality string,
) (id uint64, stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	r, err := client.Register(ctx, &clusterpb.RegisterNodeRequest{
		Server: uint64(1000 + n), Address: fmt.Sprintf("node%d:1", n),
		Locality: &clusterpb.Locality{Zone: locality},
	})
	if err != nil {
		c.t.Fatalf("register node %d: %v", n, err)
	}
	var beating sync.WaitGroup
	beating.Go(func() {
		for ctx.Err() == nil {
			if _, err := client.Heartbeat(ctx, &clusterpb.HeartbeatRequest{Cluster: testCluster,
				Node: r.Node, Server: uint64(1000 + n),
				Stats: &clusterpb.NodeStats{ClockUnixNanos: c.nodeClock(n)}}); err != nil &&
				ctx.Err() == nil {
				c.t.Errorf("heartbeat of node %d: %v", n, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second):
			}
		}
	})
	return r.Node, func() { cancel(); beating.Wait() }
}

// await waits, in virtual time, until a condition holds.
func (c *core) await(what string, holds func() bool) {
	c.t.Helper()
	c.awaitFor(100*time.Second, what, holds)
}

// awaitFor waits for so long at most, and looks 2000 times.
func (c *core) awaitFor(limit time.Duration, what string, holds func() bool) {
	c.t.Helper()
	for range 2000 {
		synctest.Wait()
		if holds() {
			return
		}
		time.Sleep(limit / 2000)
	}
	c.t.Fatalf("waited in vain: %s", what)
}

// inBubble runs a test with a core of three, a client of it, and the first member as leader.
func inBubble(t *testing.T, f func(*testing.T, *core, *coreclient.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCore(t, 3, nil)
		defer c.close()
		c.elect(c.members[0])
		f(t, c, c.client("client"))
	})
}

func keyspaceOf(t *testing.T, client *coreclient.Client, name string) *clusterpb.KeyspaceInfo {
	t.Helper()
	list, err := client.ListKeyspaces(t.Context(), &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range list.Keyspaces {
		if info.Keyspace.Name == name {
			return info
		}
	}
	return nil
}

func partitionsIn(t *testing.T, client *coreclient.Client, name string) []*clusterpb.PartitionInfo {
	t.Helper()
	var all []*clusterpb.PartitionInfo
	err := client.ListPartitions(t.Context(), &clusterpb.ListPartitionsRequest{Keyspace: name},
		func(p *clusterpb.PartitionInfo) error {
			all = append(all, p)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func hash(name string, n, replicas uint32) *clusterpb.CreateKeyspaceRequest {
	return &clusterpb.CreateKeyspaceRequest{Name: name, HashPartitions: n,
		ReplicationFactor: replicas}
}

func create(
	t *testing.T, c *core, client *coreclient.Client, r *clusterpb.CreateKeyspaceRequest,
) *clusterpb.Keyspace {
	t.Helper()
	response, err := client.CreateKeyspace(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	c.await(r.Name+" is active", func() bool {
		info := keyspaceOf(t, client, r.Name)
		return info != nil && info.Keyspace.State == clusterpb.KeyspaceState_ACTIVE
	})
	return response.Keyspace
}

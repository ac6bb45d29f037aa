package workloads

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// mistakes are what a fakeCluster may do wrong; the zero value does everything right.
type mistakes struct {
	// lostWrites: some acknowledged writes are not there. lostSoon: they are there for a moment.
	lostWrites, lostSoon bool
	// staleReads: some reads are of the moment half a second ago.
	staleReads bool
	// doubledRetries: a write that is sent again is executed again.
	doubledRetries bool
	// refusedWrites: some writes are executed and refused.
	refusedWrites bool
	// lostRows and repeatedRows: at a page boundary.
	lostRows, repeatedRows bool
	// droppedSession: writes take no notice of the session.
	droppedSession bool
	// lowWrites: writes take no notice of what was read.
	lowWrites bool
	// tornBatches: some batches are executed by half.
	tornBatches bool
	// presentScans: scans take no notice of the moment that they are to read.
	presentScans bool
	// blindSwaps: some compare-and-swaps compare nothing.
	blindSwaps bool
	// undeleted: some range deletions leave a key, and count it.
	undeleted bool
	// miscount: counts are one too low, now and then.
	miscount bool
	// failedScans: of so many scans one is refused; 1 is all, 0 none.
	failedScans int
}

// fakeCluster is a few nodes without Raft that serve the protocol over an in-memory network, each with its own clock, in front of
// one naive store. Connections break, before and after requests are served.
type fakeCluster struct {
	network  *memnet.Network
	mistakes mistakes

	mu         sync.Mutex
	random     *rand.Rand
	clients    []string // hosts
	nodes      []*fakeNode
	keyspaces  map[uint32]*clusterpb.Keyspace
	partitions map[uint64]*fakePartition
	nextID     uint64
	revision   uint64
	changed    chan struct{}
}

type fakeNode struct {
	cluster *fakeCluster
	id      uint64
	host    string
	skew    time.Duration
	clock   *hlc.Clock
	given   hlc.Timestamp // the highest timestamp that it has given out
	server  *grpc.Server
	served  chan struct{}
	clusterpb.UnimplementedClusterServer
}

// Now is the node's physical clock.
func (n *fakeNode) Now() int64 { return time.Now().Add(n.skew).UnixNano() }

func (n *fakeNode) addr() string { return n.host + ":7400" }

func startFake(t *testing.T, m mistakes) *fakeCluster {
	c := &fakeCluster{network: memnet.New(), mistakes: m, random: rand.New(rand.NewPCG(1, 2)), keyspaces: make(map[uint32]*clusterpb.Keyspace),
		partitions: make(map[uint64]*fakePartition), nextID: 100, revision: 1, changed: make(chan struct{})}
	c.network.SetDefaultLatency(300 * time.Microsecond)
	for i := range 3 {
		n := &fakeNode{cluster: c, id: uint64(i + 1), host: fmt.Sprintf("node%d", i+1), skew: time.Duration(i-1) * 100 * time.Millisecond}
		n.clock = hlc.NewClock(n, hlc.FixedBound(250*time.Millisecond))
		c.nodes = append(c.nodes, n)
		listener, err := c.network.Listen(n.addr())
		if err != nil {
			t.Fatal(err)
		}
		n.server = grpc.NewServer(rpc.ServerOptions(rpc.ServerConfig{})...)
		kvpb.RegisterKVServer(n.server, rpc.NewBatchServer(rpc.BatchServerConfig{Handle: n.handle, Cluster: func() uint64 { return 1 }}))
		clusterpb.RegisterClusterServer(n.server, n)
		n.served = make(chan struct{})
		go func(l net.Listener) {
			defer close(n.served)
			_ = n.server.Serve(l)
		}(listener)
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.server.Stop()
			<-n.served
		}
	})
	return c
}

// drop breaks all connections of a node with clients.
func (n *fakeNode) drop() {
	n.cluster.mu.Lock()
	clients := slices.Clone(n.cluster.clients)
	n.cluster.mu.Unlock()
	for _, client := range clients {
		n.cluster.network.Drop(client, n.host)
	}
}

// open connects a client; each has a host name of its own.
func (c *fakeCluster) open(ctx context.Context, options ...kv.Option) (*kv.Client, error) {
	c.mu.Lock()
	c.nextID++
	host := fmt.Sprintf("client%d", c.nextID)
	c.clients = append(c.clients, host)
	seed := c.random.Uint64()
	c.mu.Unlock()
	random := rand.New(rand.NewPCG(seed, 0))
	var mu sync.Mutex
	return kv.Open(ctx, []string{c.nodes[0].addr(), c.nodes[1].addr()}, append([]kv.Option{kv.Dialer(c.network.Dialer(host)), kv.Random(func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Uint64()
	})}, options...)...)
}

func cloned[M proto.Message](m M) M { return proto.Clone(m).(M) }

func (c *fakeCluster) addKeyspaceLocked(r *clusterpb.CreateKeyspaceRequest) *clusterpb.Keyspace {
	k := &clusterpb.Keyspace{Id: uint32(c.nextID), Name: r.Name, Partitioning: r.Partitioning, HashPartitions: r.HashPartitions,
		ReplicationFactor: 1, State: clusterpb.KeyspaceState_ACTIVE}
	c.nextID++
	c.keyspaces[k.Id] = k
	prefix := keys.KeyspacePrefix(keys.KeyspaceID(k.Id))
	if r.Partitioning == clusterpb.Partitioning_HASH {
		for h := range r.HashPartitions {
			start := keys.HashPrefix(keys.KeyspaceID(k.Id), uint16(h))
			c.addPartitionLocked(&clusterpb.Partition{Keyspace: k.Id, Hash: h, Start: start, End: keys.PrefixEnd(start), PrefixLength: 6})
		}
		return k
	}
	start := prefix
	for i := range len(r.SplitAt) + 1 {
		end := keys.PrefixEnd(prefix)
		if i < len(r.SplitAt) {
			end = append(bytes.Clone(prefix), r.SplitAt[i]...)
		}
		c.addPartitionLocked(&clusterpb.Partition{Keyspace: k.Id, Start: start, End: end, PrefixLength: 4})
		start = end
	}
	return k
}

func (c *fakeCluster) addPartitionLocked(d *clusterpb.Partition) {
	d.Id, d.Generation, d.Membership = c.nextID, 1, 1
	c.nextID++
	leader := c.nodes[d.Id%uint64(len(c.nodes))]
	d.Replicas = []*clusterpb.Replica{{Node: leader.id, Replica: 1}}
	c.partitions[d.Id] = &fakePartition{desc: d, leader: leader, versions: make(map[string][]fakeVersion),
		deletions: make(map[fakeID]*kvpb.DeleteRangeResponse)}
}

// --- the Cluster service

func (n *fakeNode) Status(context.Context, *clusterpb.StatusRequest) (*clusterpb.StatusResponse, error) {
	return &clusterpb.StatusResponse{Cluster: 1, Node: n.id, Core: true, Ready: true, Version: "fake", CoreLeader: n.cluster.nodes[0].addr(),
		Members: []*clusterpb.CoreMember{{Address: n.cluster.nodes[0].addr(), Replica: 1}}}, nil
}

func (n *fakeNode) WatchTable(_ *clusterpb.WatchTableRequest, stream grpc.ServerStreamingServer[clusterpb.TableUpdate]) error {
	c := n.cluster
	for {
		c.mu.Lock()
		u := &clusterpb.TableUpdate{Revision: c.revision, Complete: true, Cluster: 1}
		for _, n := range c.nodes {
			u.Nodes = append(u.Nodes, &clusterpb.Node{Id: n.id, Address: n.addr(), Alive: true})
		}
		for _, k := range c.keyspaces {
			u.Keyspaces = append(u.Keyspaces, cloned(k))
		}
		for _, p := range c.partitions {
			u.Partitions = append(u.Partitions, p.desc)
			u.Leaders = append(u.Leaders, &clusterpb.Leader{Partition: p.desc.Id, Node: p.leader.id, Term: fakeTerm})
		}
		changed := c.changed
		c.mu.Unlock()
		if err := stream.Send(u); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (n *fakeNode) CreateKeyspace(_ context.Context, r *clusterpb.CreateKeyspaceRequest) (*clusterpb.CreateKeyspaceResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.keyspaces {
		if k.Name == r.Name {
			return nil, status.Errorf(codes.AlreadyExists, "keyspace %q exists", r.Name)
		}
	}
	k := c.addKeyspaceLocked(r)
	c.revision++
	close(c.changed)
	c.changed = make(chan struct{})
	return &clusterpb.CreateKeyspaceResponse{Keyspace: cloned(k)}, nil
}

func (n *fakeNode) ListKeyspaces(context.Context, *clusterpb.ListKeyspacesRequest) (*clusterpb.ListKeyspacesResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &clusterpb.ListKeyspacesResponse{}
	for _, k := range c.keyspaces {
		r.Keyspaces = append(r.Keyspaces, &clusterpb.KeyspaceInfo{Keyspace: cloned(k)})
	}
	return r, nil
}

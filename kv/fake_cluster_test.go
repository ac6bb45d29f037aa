package kv

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// fakeCluster is a cluster without Raft: nodes that serve the protocol over an in-memory network, in front of one naive,
// shared, always consistent store. Tests script what goes wrong.
type fakeCluster struct {
	t       testing.TB
	network *memnet.Network
	id      uint64

	mu         sync.Mutex
	nodes      map[uint64]*fakeNode
	keyspaces  map[uint32]*clusterpb.Keyspace
	partitions map[uint64]*fakePartition
	txns       map[string]*fakeTxn
	nextID     uint64
	revision   uint64
	changed    chan struct{}
	// script is asked about every request of a partition before it is served; nil lets all pass.
	script func(n *fakeNode, r *kvpb.Request) fault
	// heard is told of every answer, without the lock held; nil tells nobody. It is set before there are requests.
	heard func(n *fakeNode, r *kvpb.Request, answer *kvpb.Response)
	// waitingFor keeps new keyspaces in state CREATING.
	waitingFor string
	// created, if not nil, is told of a new keyspace first, with the lock held.
	created func(*clusterpb.Keyspace)
	// noLeaders keeps leaders out of the table.
	noLeaders bool
	requests  map[string]int
	// messages counts those in which there was a request of a kind.
	messages map[string]int
	// noMerges refuses scans and reads of several partitions, as servers do that are older than the commands.
	noMerges bool
	// noMoments refuses scans of several partitions without a timestamp, as servers do that are
	// older than these.
	noMoments bool
	// shared counts the reads of several partitions that were not refused so.
	shared int
	// pageRows caps every page, as a server's own limits would.
	pageRows int
}

// fault is what a script lets happen to a request.
type fault struct {
	// code refuses it, without running it.
	code kvpb.ErrorCode
	// breakBefore and breakAfter drop the connections of the node, before or after it ran.
	breakBefore, breakAfter bool
	// unknown runs it and answers OUTCOME_UNKNOWN.
	unknown bool
	// swallow never answers it.
	swallow bool
}

type fakeNode struct {
	cluster *fakeCluster
	id      uint64
	host    string
	addr    string
	skew    atomic.Int64 // nanoseconds
	clock   *hlc.Clock
	given   hlc.Timestamp
	hangs   bool
	// timeless is how often it is going to say that it does not know what time it is.
	timeless int
	server   *grpc.Server
	served   chan struct{}
	clusterpb.UnimplementedClusterServer
}

type fakePartition struct {
	desc   *clusterpb.Partition
	leader uint64
	term   uint64
	// low is above everything that earlier leaders can have served.
	low hlc.Timestamp
	// highest is the newest version, read the newest read.
	highest, read hlc.Timestamp
	versions      map[string][]fakeVersion // oldest first
	intents       map[string]*fakeIntent
	ranges        map[[2]uint64]*kvpb.DeleteRangeResponse
}

type fakeVersion struct {
	at               hlc.Timestamp
	value            []byte
	tombstone        bool
	client, sequence uint64
}

const fakeOffset = 250 * time.Millisecond

type skewed struct{ n *fakeNode }

func (s skewed) Now() int64 { return time.Now().UnixNano() + s.n.skew.Load() }

func newFakeCluster(t testing.TB, nodes int) *fakeCluster {
	c := &fakeCluster{
		t: t, network: memnet.New(), id: 0xc1, nodes: make(map[uint64]*fakeNode),
		keyspaces: make(map[uint32]*clusterpb.Keyspace), partitions: make(map[uint64]*fakePartition),
		nextID: 100, revision: 1, changed: make(chan struct{}), requests: make(map[string]int), messages: make(map[string]int), pageRows: 1 << 30,
	}
	for i := 1; i <= nodes; i++ {
		n := &fakeNode{cluster: c, id: uint64(i), host: fmt.Sprintf("node%d", i)}
		n.addr = n.host + ":7400"
		n.clock = hlc.NewClock(skewed{n}, hlc.FixedBound(fakeOffset))
		c.nodes[n.id] = n
		n.start()
	}
	return c
}

func (n *fakeNode) start() {
	listener, err := n.cluster.network.Listen(n.addr)
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	n.server = grpc.NewServer(rpc.ServerOptions(rpc.ServerConfig{})...)
	kvpb.RegisterKVServer(n.server, rpc.NewBatchServer(rpc.BatchServerConfig{
		Handle:  n.handle,
		Cluster: func() uint64 { return n.cluster.id },
	}))
	clusterpb.RegisterClusterServer(n.server, n)
	n.served = make(chan struct{})
	go func(s *grpc.Server, l net.Listener, served chan struct{}) {
		defer close(served)
		_ = s.Serve(l)
	}(n.server, listener, n.served)
}

// hang lets a node accept requests and answer none.
func (n *fakeNode) hang(hangs bool) {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	n.hangs = hangs
}

// kill is kill -9: connections are reset, and nobody listens.
func (n *fakeNode) kill() {
	n.cluster.network.DropHost(n.host)
	n.server.Stop()
	<-n.served
}

func (c *fakeCluster) close() {
	for _, n := range c.nodes {
		n.server.Stop()
		<-n.served
	}
}

func (c *fakeCluster) endpoints() []string {
	var all []string
	for i := 1; i <= len(c.nodes); i++ {
		all = append(all, c.nodes[uint64(i)].addr)
	}
	return all
}

func (c *fakeCluster) open(options ...Option) *Client {
	c.t.Helper()
	client, err := c.tryOpen(context.Background(), c.endpoints(), options...)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

func (c *fakeCluster) tryOpen(ctx context.Context, endpoints []string, options ...Option) (*Client, error) {
	return Open(ctx, endpoints, append([]Option{Dialer(c.network.Dialer("client"))}, options...)...)
}

// set changes a setting.
func (c *fakeCluster) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// play sets the script, which is called with the cluster's lock held.
func (c *fakeCluster) play(script func(n *fakeNode, r *kvpb.Request) fault) {
	c.set(func() { c.script = script })
}

// led are the partitions that a node leads, of all keyspaces.
func (c *fakeCluster) led(node uint64) (all []*fakePartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.partitions {
		if p.leader == node {
			all = append(all, p)
		}
	}
	return all
}

// change makes a change to what the table shows, and tells the watchers.
func (c *fakeCluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	c.tellLocked()
}

func (c *fakeCluster) tellLocked() {
	c.revision++
	close(c.changed)
	c.changed = make(chan struct{})
}

// addKeyspace makes a keyspace without asking the protocol. splits is nil for a hash keyspace.
func (c *fakeCluster) addKeyspace(name string, hash int, splits ...string) uint32 {
	var id uint32
	c.change(func() {
		r := &clusterpb.CreateKeyspaceRequest{Name: name, ReplicationFactor: 3}
		if hash > 0 {
			r.HashPartitions = uint32(hash)
		} else {
			r.Partitioning = clusterpb.Partitioning_RANGE
			for _, s := range splits {
				r.SplitAt = append(r.SplitAt, []byte(s))
			}
		}
		id = c.addKeyspaceLocked(r).Id
	})
	return id
}

func (c *fakeCluster) addKeyspaceLocked(r *clusterpb.CreateKeyspaceRequest) *clusterpb.Keyspace {
	k := &clusterpb.Keyspace{Id: uint32(c.nextID), Name: r.Name, Partitioning: r.Partitioning, HashPartitions: r.HashPartitions,
		ReplicationFactor: r.ReplicationFactor, GcWindowSeconds: r.GcWindowSeconds, CommitWait: r.CommitWait,
		State: clusterpb.KeyspaceState_ACTIVE}
	if c.waitingFor != "" {
		k.State = clusterpb.KeyspaceState_CREATING
	}
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
	for _, s := range append(slices.Clone(r.SplitAt), nil) {
		end := keys.PrefixEnd(prefix)
		if s != nil {
			end = append(bytes.Clone(prefix), s...)
		}
		c.addPartitionLocked(&clusterpb.Partition{Keyspace: k.Id, Start: start, End: end, PrefixLength: 4})
		start = end
	}
	return k
}

func (c *fakeCluster) addPartitionLocked(d *clusterpb.Partition) *fakePartition {
	d.Id, d.Generation, d.Membership = c.nextID, 1, 1
	c.nextID++
	for i := range 3 {
		node := (d.Id+uint64(i))%uint64(len(c.nodes)) + 1
		if i < len(c.nodes) {
			d.Replicas = append(d.Replicas, &clusterpb.Replica{Node: node, Replica: uint64(i + 1)})
		}
	}
	p := &fakePartition{desc: d, leader: d.Replicas[0].Node, term: 5, versions: make(map[string][]fakeVersion),
		ranges: make(map[[2]uint64]*kvpb.DeleteRangeResponse)}
	c.partitions[d.Id] = p
	return p
}

// partitionOf finds the partition that holds a key.
func (c *fakeCluster) partitionOf(keyspace uint32, key string) *fakePartition {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.keyspaces[keyspace]
	for _, p := range c.partitions {
		if p.desc.Keyspace != keyspace {
			continue
		}
		if k.Partitioning == clusterpb.Partitioning_HASH {
			if p.desc.Hash == keys.HashPartition([]byte(key), k.HashPartitions) {
				return p
			}
		} else if keys.PartitionContains(p.desc, []byte(key)) {
			return p
		}
	}
	c.t.Fatalf("no partition for %q", key)
	return nil
}

// lead makes another replica the leader of a partition, in a new term. The table is only told if told is set.
func (c *fakeCluster) lead(p *fakePartition, node uint64, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.leader = node
	if node == 0 {
		return
	}
	p.term++
	p.low = hlc.Max(p.low, hlc.Timestamp{Wall: c.nodes[node].clock.Physical() + int64(fakeOffset)})
	if told {
		c.tellLocked()
	}
}

// next is the replica after the leader.
func (p *fakePartition) next() uint64 {
	for i, r := range p.desc.Replicas {
		if r.Node == p.leader {
			return p.desc.Replicas[(i+1)%len(p.desc.Replicas)].Node
		}
	}
	return p.desc.Replicas[0].Node
}

// split cuts a range partition in two; the upper half gets a new id and another leader.
func (c *fakeCluster) split(p *fakePartition, at string, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut := append(bytes.Clone(keys.PartitionPrefix(p.desc)), at...)
	if bytes.Compare(cut, p.desc.Start) <= 0 || bytes.Compare(cut, p.desc.End) >= 0 {
		return
	}
	upper := c.addPartitionLocked(&clusterpb.Partition{Keyspace: p.desc.Keyspace, Start: cut, End: p.desc.End, PrefixLength: 4})
	upper.desc.Generation = p.desc.Generation + 1
	upper.highest, upper.read = p.highest, p.read
	upper.low = hlc.Max(p.low, hlc.Timestamp{Wall: time.Now().UnixNano() + int64(2*fakeOffset)})
	maps.Copy(upper.ranges, p.ranges)
	for key, v := range p.versions {
		if key >= at {
			upper.versions[key] = v
			delete(p.versions, key)
		}
	}
	lower := cloned(p.desc)
	lower.End, lower.Generation = cut, p.desc.Generation+1
	p.desc = lower
	if told {
		c.tellLocked()
	}
}

// writes counts the versions of a key.
func (c *fakeCluster) writes(keyspace uint32, key string) int {
	p := c.partitionOf(keyspace, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(p.versions[key])
}

// messagesWith is how many messages with a request of a kind nodes got so far.
func (c *fakeCluster) messagesWith(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages[kind]
}

// requestsOf is how many requests of a kind nodes were sent so far.
func (c *fakeCluster) requestsOf(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[kind]
}

func cloned[M proto.Message](m M) M { return proto.Clone(m).(M) }

// --- the Cluster service

func (n *fakeNode) Status(context.Context, *clusterpb.StatusRequest) (*clusterpb.StatusResponse, error) {
	c := n.cluster
	return &clusterpb.StatusResponse{Cluster: c.id, Node: n.id, Core: true, Ready: true, Version: "fake", CoreLeader: c.nodes[1].addr,
		Members: []*clusterpb.CoreMember{{Address: c.nodes[1].addr, Replica: 1}}}, nil
}

func (c *fakeCluster) tableLocked() *clusterpb.TableUpdate {
	u := &clusterpb.TableUpdate{Revision: c.revision, Complete: true, Cluster: c.id}
	for _, n := range c.nodes {
		u.Nodes = append(u.Nodes, &clusterpb.Node{Id: n.id, Address: n.addr, Alive: true})
	}
	for _, k := range c.keyspaces {
		u.Keyspaces = append(u.Keyspaces, cloned(k))
	}
	for _, p := range c.partitions {
		u.Partitions = append(u.Partitions, p.desc)
		if !c.noLeaders {
			u.Leaders = append(u.Leaders, &clusterpb.Leader{Partition: p.desc.Id, Node: p.leader, Term: p.term})
		}
	}
	return u
}

func (n *fakeNode) WatchTable(_ *clusterpb.WatchTableRequest, stream grpc.ServerStreamingServer[clusterpb.TableUpdate]) error {
	c := n.cluster
	shown := make(map[uint32]bool)
	for {
		c.mu.Lock()
		u, changed := c.tableLocked(), c.changed
		for id := range shown {
			if c.keyspaces[id] == nil {
				u.RemovedKeyspaces = append(u.RemovedKeyspaces, id)
				delete(shown, id)
			}
		}
		for id := range c.keyspaces {
			shown[id] = true
		}
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

func (n *fakeNode) ListNodes(context.Context, *clusterpb.ListNodesRequest) (*clusterpb.ListNodesResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	return &clusterpb.ListNodesResponse{Nodes: c.tableLocked().Nodes}, nil
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
	if int(r.ReplicationFactor) > len(c.nodes) {
		return nil, status.Errorf(codes.InvalidArgument, "%d replicas need as many nodes, there are %d", r.ReplicationFactor, len(c.nodes))
	}
	k := c.addKeyspaceLocked(r)
	if c.created != nil {
		c.created(k)
	}
	c.tellLocked()
	return &clusterpb.CreateKeyspaceResponse{Keyspace: cloned(k)}, nil
}

func (n *fakeNode) DropKeyspace(_ context.Context, r *clusterpb.DropKeyspaceRequest) (*clusterpb.DropKeyspaceResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, k := range c.keyspaces {
		if k.Name == r.Name {
			delete(c.keyspaces, id)
			for pid, p := range c.partitions {
				if p.desc.Keyspace == id {
					delete(c.partitions, pid)
				}
			}
			c.tellLocked()
			return &clusterpb.DropKeyspaceResponse{}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no keyspace %q", r.Name)
}

func (n *fakeNode) ListKeyspaces(context.Context, *clusterpb.ListKeyspacesRequest) (*clusterpb.ListKeyspacesResponse, error) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &clusterpb.ListKeyspacesResponse{}
	for _, k := range c.keyspaces {
		r.Keyspaces = append(r.Keyspaces, &clusterpb.KeyspaceInfo{Keyspace: cloned(k), WaitingFor: c.waitingFor})
	}
	return r, nil
}

func (n *fakeNode) ListPartitions(r *clusterpb.ListPartitionsRequest, stream grpc.ServerStreamingServer[clusterpb.PartitionInfo]) error {
	c := n.cluster
	c.mu.Lock()
	var all []*clusterpb.PartitionInfo
	for _, p := range c.partitions {
		k := c.keyspaces[p.desc.Keyspace]
		if r.Keyspace == "" || k.Name == r.Keyspace {
			all = append(all, &clusterpb.PartitionInfo{Partition: p.desc, Keyspace: k.Name, LeaderNode: p.leader, Term: p.term})
		}
	}
	c.mu.Unlock()
	for _, p := range all {
		if err := stream.Send(p); err != nil {
			return err
		}
	}
	return nil
}

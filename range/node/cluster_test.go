package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = 0xc1

// network delivers messages between the nodes of one test.
type network struct {
	mu       sync.Mutex
	handlers map[uint64]peer.Handler
	links    map[[2]uint64]*link
	cut      map[uint64]bool
	// lost, if not nil, says which messages do not arrive.
	lost    func(to uint64, m *peerpb.RaftMessage) bool
	closed  bool
	running sync.WaitGroup
}

// link is one direction between two nodes: a bounded queue and its goroutine.
type link struct{ queue chan *peerpb.MessageBatch }

func newNetwork() *network {
	return &network{handlers: make(map[uint64]peer.Handler), links: make(map[[2]uint64]*link),
		cut: make(map[uint64]bool)}
}

func (n *network) attach(id uint64, h peer.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h == nil {
		delete(n.handlers, id)
	} else {
		n.handlers[id] = h
	}
}

// setCut cuts a node off, or not, and returns whether it was before.
func (n *network) setCut(id uint64, cut bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.cut[id]
	n.cut[id] = cut
	return was
}

func (n *network) handler(from, to uint64) peer.Handler {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut[from] || n.cut[to] {
		return nil
	}
	return n.handlers[to]
}

func (n *network) send(from, to uint64, b *peerpb.MessageBatch) {
	// As over a wire: nothing is shared.
	data, err := proto.Marshal(b)
	if err != nil {
		panic(err)
	}
	copied := &peerpb.MessageBatch{}
	if err := copied.UnmarshalVTUnsafe(data); err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	l := n.links[[2]uint64{from, to}]
	if l == nil {
		l = &link{queue: make(chan *peerpb.MessageBatch, 10_000)}
		n.links[[2]uint64{from, to}] = l
		n.running.Go(func() {
			for b := range l.queue {
				if h := n.handler(from, to); h != nil {
					n.filter(to, b)
					h.HandleMessages(from, b)
				}
			}
		})
	}
	select {
	case l.queue <- copied:
	default:
	}
}

// filter takes out what does not arrive.
func (n *network) filter(to uint64, b *peerpb.MessageBatch) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost != nil {
		b.Messages = slices.DeleteFunc(b.Messages,
			func(m *peerpb.RaftMessage) bool { return n.lost(to, m) })
	}
}

// lose sets which messages do not arrive.
func (n *network) lose(lost func(to uint64, m *peerpb.RaftMessage) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = lost
}

func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.links {
		close(l.queue)
	}
	n.mu.Unlock()
	n.running.Wait()
}

// transport is one node's side of the network.
type transport struct {
	network *network
	self    uint64
}

func (t transport) Send(host uint64, _ peer.Class, messages []*peerpb.RaftMessage) {
	t.network.send(t.self, host, &peerpb.MessageBatch{Messages: messages})
}

func (t transport) Ping(host uint64, p *peerpb.HostPing, beside []*peerpb.RaftMessage) {
	t.network.send(t.self, host, &peerpb.MessageBatch{Ping: p, Messages: beside})
}

func (t transport) SendSnapshot(ctx context.Context, host uint64, header *peerpb.SnapshotHeader,
	write func(io.Writer) error) error {
	h := t.network.handler(t.self, host)
	if h == nil {
		return errors.New("no route")
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := h.HandleSnapshot(ctx, t.self, header, r)
		r.CloseWithError(err)
		done <- err
	}()
	err := write(w)
	w.CloseWithError(err)
	if received := <-done; err == nil {
		err = received
	}
	return err
}

// cluster is a core and nodes in one bubble.
type cluster struct {
	t       *testing.T
	core    *core
	network *network
	nodes   map[uint64]*member
	next    uint64
}

// member is one node, over its restarts.
type member struct {
	cluster  *cluster
	id       uint64
	fs       *vfs.MemFS
	physical *shifted
	change   func(*Config)
	log      *engine.Log
	state    *engine.State
	*Node
}

// shifted is the system's clock, wrong by an offset.
type shifted struct {
	mu     sync.Mutex
	offset time.Duration
}

func (s *shifted) Now() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.offset).UnixNano()
}

func (s *shifted) shift(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset = d
}

func newCluster(t *testing.T, nodes int, change func(*Config)) *cluster {
	c := &cluster{t: t, core: newCore(), network: newNetwork(), nodes: make(map[uint64]*member),
		next: uint64(keys.FirstDataPartition)}
	u := &clusterpb.TableUpdate{}
	for i := range nodes {
		id := uint64(i + 1)
		c.nodes[id] = &member{cluster: c, id: id, fs: vfs.NewCrashableMem(), physical: &shifted{},
			change: change}
		u.Nodes = append(u.Nodes, &clusterpb.Node{Id: id, Address: fmt.Sprintf("node-%d:1", id),
			Alive: true})
	}
	c.core.update(u)
	for id := range nodes {
		c.nodes[uint64(id+1)].start()
	}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) close() {
	for _, m := range c.nodes {
		m.stop()
	}
	c.network.close()
}

func (m *member) start() {
	t := m.cluster.t
	t.Helper()
	var err error
	o := engine.Options{FS: m.fs, Dir: "log", MemTableBytes: 1 << 20}
	if m.log, err = engine.OpenLog(o); err != nil {
		t.Fatal(err)
	}
	o.Dir = "state"
	if m.state, err = engine.OpenState(o); err != nil {
		t.Fatal(err)
	}
	config := Config{
		ID: keys.NodeID(m.id), Cluster: testCluster, Server: 100 + m.id, Log: m.log, State: m.state,
		Clock: hlc.NewClock(m.physical, nil), Metadata: m.cluster.core, Logger: testLogger(),
		Shards: 2,
	}
	if m.change != nil {
		m.change(&config)
	}
	if m.Node, err = New(config); err != nil {
		t.Fatal(err)
	}
	m.cluster.network.attach(m.id, m.Handler())
	if err := m.Start(transport{m.cluster.network, m.id}); err != nil {
		t.Fatal(err)
	}
}

func testLogger() *slog.Logger {
	if os.Getenv("TIDEMARK_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// stop ends the node as a shutdown does.
func (m *member) stop() {
	if m.Node == nil {
		return
	}
	m.cluster.network.attach(m.id, nil)
	synctest.Wait()
	m.Close()
	m.state.Close()
	m.log.Close()
	m.Node = nil
}

// crash ends the node and takes from its disk what was not synced.
func (m *member) crash() {
	// Not a word leaves the node from before the moment whose disk it keeps: it would speak of what
	// that disk never had.
	was := m.cluster.network.setCut(m.id, true)
	left := m.fs.CrashClone(vfs.CrashCloneCfg{})
	m.stop()
	m.fs = left
	m.cluster.network.setCut(m.id, was)
}

// createHash makes a hash keyspace and assigns its partitions to all nodes, preferred leaders in
// turn.
func (c *cluster) createHash(id uint32, partitions int) []*clusterpb.Partition {
	u := &clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{{
		Id: id, Name: fmt.Sprintf("ks%d", id), Partitioning: clusterpb.Partitioning_HASH,
		HashPartitions:    uint32(partitions),
		ReplicationFactor: 3, GcWindowSeconds: 3600, State: clusterpb.KeyspaceState_ACTIVE}}}
	for i := range partitions {
		prefix := keys.HashPrefix(keys.KeyspaceID(id), uint16(i))
		p := &clusterpb.Partition{
			Id: c.next, Keyspace: id, Hash: uint32(i), Start: prefix, End: keys.PrefixEnd(prefix),
			Generation: 1, Membership: 1, PrefixLength: keys.HashPrefixLength,
		}
		c.next++
		for r := range len(c.nodes) {
			node := uint64((i+r)%len(c.nodes) + 1)
			p.Replicas = append(p.Replicas, &clusterpb.Replica{Node: node, Replica: uint64(r + 1)})
		}
		u.Partitions = append(u.Partitions, p)
	}
	c.core.update(u)
	return u.Partitions
}

// await waits, in virtual time, until a condition holds.
func (c *cluster) await(what string, limit time.Duration, holds func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(limit)
	for !holds() {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
	}
}

// awaitServing waits until a node that was started answers requests: that it has compared its clock
// with those of its peers.
func (c *cluster) awaitServing(m *member) {
	c.t.Helper()
	c.await(fmt.Sprintf("node %d has compared clocks", m.id), 10*time.Second,
		func() bool { return m.health.Fit() })
}

// leaderOf is the node that serves a partition, and its term; 0 if there is none.
func (c *cluster) leaderOf(id uint64) (uint64, uint64) {
	for _, m := range c.nodes {
		if m.Node == nil {
			continue
		}
		if h := m.replicas.Get(keys.PartitionID(id)); h != nil {
			if term, ok := h.Group.Lease(); ok && h.Leading.Load() && h.Replica.Serving() {
				return m.id, term
			}
		}
	}
	return 0, 0
}

// leaseLasts says that the lease of a node that leads a partition stands for some time yet.
func (c *cluster) leaseLasts(node, id uint64, d time.Duration) bool {
	h := c.nodes[node].replicas.Get(keys.PartitionID(id))
	return h != nil && h.Group.LeaseLeft() > d
}

// believedLeader is the node that leads a partition, whether its lease stands or not: that of a
// sleeping group does not.
func (c *cluster) believedLeader(id uint64) (node, term uint64) {
	for _, m := range c.nodes {
		if m.Node == nil {
			continue
		}
		if h := m.replicas.Get(keys.PartitionID(id)); h != nil && h.Leading.Load() {
			if _, at := h.Group.Leader(); at > term {
				node, term = m.id, at
			}
		}
	}
	return node, term
}

// handle takes a message in, as the server of the clients' streams does, and does all of the work.
func handle(n *Node, client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
	if work := n.Submit(client, batch, reply); work != nil {
		work.Run()
		work.Done()
	}
}

// ask sends requests to a node and waits for all answers, by request id.
func (c *cluster) ask(node uint64, requests ...*kvpb.Request) map[uint64]*kvpb.Response {
	c.t.Helper()
	answers := make(chan *kvpb.Response, len(requests))
	handle(c.nodes[node].Node, 7, requests, func(r *kvpb.Response) {
		answers <- proto.Clone(r).(*kvpb.Response) // rows are only good until this returns
	})
	found := make(map[uint64]*kvpb.Response)
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for range requests {
		select {
		case r := <-answers:
			found[r.Id] = r
		case <-timeout.C:
			c.t.Fatalf("node %d answered %d of %d requests", node, len(found), len(requests))
		}
	}
	return found
}

var sequence uint64

func put(p *clusterpb.Partition, term uint64, key, value string) *kvpb.Request {
	sequence++
	return &kvpb.Request{Id: sequence, Partition: p.Id, Generation: p.Generation, Term: term,
		Sequence: sequence,
		Command:  &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func get(p *clusterpb.Partition, term uint64, key string) *kvpb.Request {
	sequence++
	return &kvpb.Request{Id: sequence, Partition: p.Id, Generation: p.Generation, Term: term,
		Sequence: sequence,
		Command:  &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}}
}

// do sends a request to the leader, again and again until it is answered without an error that
// says to try again.
func (c *cluster) do(request func(term uint64) *kvpb.Request, partition uint64,
	limit time.Duration) *kvpb.Response {
	c.t.Helper()
	deadline := time.Now().Add(limit)
	var last *kvpb.Response
	for time.Now().Before(deadline) {
		if node, term := c.believedLeader(partition); node != 0 {
			q := request(term)
			last = c.ask(node, q)[q.Id]
			switch last.GetError().GetCode() {
			case kvpb.ErrorCode_NOT_LEADER,
				kvpb.ErrorCode_OUTCOME_UNKNOWN,
				kvpb.ErrorCode_NODE_UNHEALTHY,
				kvpb.ErrorCode_NO_QUORUM,
				kvpb.ErrorCode_CLOCK_SKEW:
			default:
				return last
			}
		} else {
			for _, m := range c.nodes {
				if m.Node != nil {
					q := request(0)
					// It may be a part of another one by now.
					if r := c.ask(m.id, q)[q.Id]; r.GetError().GetCode() == kvpb.ErrorCode_STALE_EPOCH {
						return r
					}
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("partition %d: no node answered within %s; last %v", partition, limit, last)
	return nil
}

func (c *cluster) mustPut(p *clusterpb.Partition, key, value string) {
	c.t.Helper()
	r := c.do(func(term uint64) *kvpb.Request { return put(p, term, key, value) }, p.Id,
		30*time.Second)
	if r.Error != nil {
		c.t.Fatalf("put %s: %v", key, r.Error)
	}
}

func (c *cluster) mustGet(p *clusterpb.Partition, key, value string) {
	c.t.Helper()
	r := c.do(func(term uint64) *kvpb.Request { return get(p, term, key) }, p.Id, 30*time.Second)
	if r.Error != nil || !r.GetGet().GetFound() || string(r.GetGet().GetValue()) != value {
		c.t.Fatalf("get %s: %v, want %q", key, r, value)
	}
}

// asPreferred says whether each partition is led by its preferred node.
func (c *cluster) asPreferred(partitions []*clusterpb.Partition) bool {
	return !slices.ContainsFunc(partitions, func(p *clusterpb.Partition) bool {
		node, _ := c.believedLeader(p.Id)
		return node != p.Replicas[0].Node
	})
}

package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/placement/server/nodes"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/txn"
)

// realmData is the realm of the data nodes' Raft hosts. realmCore is the realm of the core members'
// hosts.
const (
	realmData = "data"
	realmCore = "core"
)

// nodePart is a running data node.
type nodePart struct {
	databases *datadir.Databases
	cache     *pebble.Cache
	node      *node.Node
	pusher    *txn.PushSender
	transport *peer.Transport
	// alarms are the timers of this node. They are nil if timers come from the configuration.
	alarms *timer.Timers
}

// dataNode is a server's role as a data node: it joins the cluster, and serves until the server
// stops.
type dataNode struct {
	*environment
	// clients has the connections of clients that send batches of requests.
	clients *rpc.BatchServer
	// latencies returns how long requests of clients have taken.
	latencies func() loadmeter.Latencies
	member    *coreMember
	// part is the running node. It is nil while the node does not run.
	part atomic.Pointer[nodePart]
	// id is the node's id, 0 until it is known.
	id atomic.Uint64
	// decommissioned is set when the core has decommissioned the node. The server continues as a
	// member of the core.
	decommissioned atomic.Bool
}

// node returns the node. It is nil until the node runs.
func (d *dataNode) node() *node.Node {
	if p := d.part.Load(); p != nil {
		return p.node
	}
	return nil
}

// wall returns the reading of the node's clock, in nanoseconds since 1970. It returns 0 while the
// clock is not trusted.
func (d *dataNode) wall() uint64 {
	n := d.node()
	if n == nil {
		return 0
	}
	state, _ := n.Host().Clocks().State()
	wall, trusted := d.clock.PhysicalReading()
	if !trusted || state != clockhealth.Trusted {
		return 0
	}
	return uint64(max(0, wall))
}

// wake makes the node send a heartbeat soon, if the node runs.
func (d *dataNode) wake() {
	if n := d.node(); n != nil {
		n.Wake()
	}
}

// diskSlow reports whether the node's disk is slow.
func (d *dataNode) diskSlow() bool {
	n := d.node()
	if n == nil {
		return false
	}
	slow, _ := n.Host().DiskSlow()
	return slow
}

// known reports whether this directory is that of a data node which was registered at the present
// address.
func (d *dataNode) known() bool {
	id := d.directory.Identity()
	return id.Node != 0 && id.Address == d.config.Advertise
}

// start joins the cluster if this directory has not joined yet, and starts the data node. A node
// that has joined starts from its disk, and serves even if the core cannot be reached. If its
// address is new, it asks the core first. The core does not let a server take the place of a node
// that is alive: two processes with the directory of one node would both vote as that node.
func (d *dataNode) start(ctx context.Context) (*nodePart, error) {
	// The databases are created before the id is stored. So if a directory has an id but no log, the
	// log was lost.
	id, known := d.directory.Identity().Node, d.known()
	if !known {
		r, err := d.register(ctx)
		if err != nil {
			return nil, err
		}
		if err := d.directory.Join(r.GetCluster()); err != nil {
			return nil, err
		}
		if err := d.auth.Adopt(r.GetGuard()); err != nil {
			return nil, err
		}
		id = r.GetNode()
	}
	p := &nodePart{cache: pebble.NewCache(d.memory.Cache)}
	var err error
	registerer := prometheus.WrapRegistererWith(prometheus.Labels{"part": "node"},
		d.config.Registry)
	if p.databases, err = d.openDatabases(datadir.Node, datadir.DatabaseSizes{
		LogMemTable: d.memory.LogMemTable, LogCache: d.memory.LogCache,
		MemTable: d.memory.MemTable}, p.cache, registerer); err != nil {
		p.cache.Unref()
		return nil, err
	}
	if !known {
		if err := d.directory.BecomeNode(id, d.config.Advertise); err != nil {
			err = errors.Join(err, p.databases.Close())
			p.cache.Unref()
			return nil, err
		}
	}
	self := d.directory.Identity()
	cluster := uint64(self.Cluster)
	d.cluster.Store(cluster)
	d.id.Store(id)
	p.pusher = txn.NewPushSender(txn.PushSenderConfig{Open: d.openPushes})
	after := d.config.AfterFunc
	if after == nil {
		p.alarms = timer.New()
		after = p.alarms.AfterFunc
	}
	queue := d.config.Admission
	if queue.Short == nil && d.config.AfterFunc == nil {
		queue.Short = (&admission.Processors{Wait: processorWait}).Short
	}
	p.node, err = node.New(node.Config{
		ID: keys.NodeID(id), Cluster: cluster, Server: uint64(self.Server),
		Log: p.databases.Log, State: p.databases.State, Clock: d.clock,
		Metadata: reporting{d.core, d.auth, d.level, d.failed},
		Pusher:   p.pusher, Resolver: p.pusher,
		Logger: d.config.Logger, Registerer: registerer, Random: d.config.Random,
		Monotonic: d.config.Monotonic, AfterFunc: after, Gone: d.clients.Gone,
		ClientIdentity: d.clients.ClientIdentity, SlowThreshold: d.config.SlowThreshold,
		Traces: d.config.Traces, TraceRate: d.config.TraceRate,
		Admission: queue,
		Tick:      d.config.Tick, ElectionTicks: d.config.ElectionTicks,
		SleepAfter:     d.config.SleepAfter,
		RetainLogBytes: d.config.RetainLogBytes, GCInterval: d.config.GCInterval,
		MaxPendingLogBytes: d.memory.RaftPending, MaxInboxBytes: d.memory.RaftInbox,
		Limits: config.Limits{TotalReadBytes: d.memory.Reads, TotalRecentBytes: d.memory.Recent},
	})
	if err != nil {
		p.pusher.Close()
		p.closeTimers()
		p.cache.Unref()
		return nil, d.damaged(datadir.Node, errors.Join(err, p.databases.Close()))
	}
	node.HistoryOf(p.node).Measure(d.latencies)
	p.transport = peer.NewTransport(peer.Config{
		Realm: realmData, Self: id, Cluster: func() uint64 { return cluster },
		Resolve: p.node.Resolve, Dialer: d.dialer,
		Handler: p.node.Handler(), Logger: d.config.Logger, Registry: prom.Registry(registerer),
		SnapshotBytesPerSecond: d.config.SnapshotBytesPerSecond,
		MaxQueuesBytes:         d.memory.PeerQueues,
	})
	if err := p.node.Start(d.config.PeerFilter.before(realmData, p.transport,
		p.node.Resolve)); err != nil {
		return nil, d.damaged(datadir.Node, errors.Join(err, p.close()))
	}
	d.rpc.ServePeers(p.transport)
	return p, nil
}

// processorWait is the time that goroutines may wait for a processor before the number of
// concurrent requests is reduced. It is about the duration of a read.
const processorWait = time.Millisecond

// close stops the node. Nothing may use it any more.
func (p *nodePart) close() error {
	p.pusher.Close()
	p.transport.Close()
	p.node.Close()
	p.closeTimers()
	err := p.databases.Close()
	p.cache.Unref()
	return err
}

func (p *nodePart) closeTimers() {
	if p.alarms != nil {
		p.alarms.Close()
	}
}

// run starts the data node. A node that knows its id starts at once from its disk, and registers as
// soon as the core answers.
func (d *dataNode) run(ctx context.Context) error {
	known := d.known()
	p, err := d.start(ctx)
	if err != nil {
		return err
	}
	d.part.Store(p)
	if !known {
		d.config.Logger.Info("joined the cluster", "node", p.node.ID(), "cluster",
			d.directory.Identity().Cluster)
		return nil
	}
	_, err = d.register(ctx)
	if nodes.Decommissioned(err) && d.member.belongs() {
		// The node has no data that is asked for any more, and the core may need this member.
		d.decommissioned.Store(true)
		d.config.Logger.Error("THE NODE OF THIS SERVER WAS DECOMMISSIONED; it goes on as a member of "+
			"the core", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	d.config.Logger.Info("the core knows this node again", "node", p.node.ID(), "cluster",
		d.directory.Identity().Cluster)
	return nil
}

// openPushes opens the sender from this node to the coordinators of transactions.
func (d *dataNode) openPushes() (txn.Sender, error) {
	sender, err := d.openSender()
	if err != nil {
		return nil, fmt.Errorf("no way to other transactions' coordinators: %w", err)
	}
	return sender, nil
}

// register asks the core for a node id for this directory, or for a confirmation of the present id.
// It retries until the context ends or the core refuses permanently.
func (d *dataNode) register(ctx context.Context) (*clusterpb.RegisterNodeResponse, error) {
	self := d.directory.Identity()
	r, err := d.core.Register(ctx, &clusterpb.RegisterNodeRequest{
		Cluster: uint64(self.Cluster), Node: self.Node, Server: uint64(self.Server),
		Address: d.config.Advertise, HttpAddress: d.config.HTTP,
		Locality: &clusterpb.Locality{Region: d.config.Region, Zone: d.config.Zone},
		Tags:     d.config.Tags,
		Version:  d.config.Version, StartedUnix: time.Now().Unix(), Guard: d.auth.report(),
		Levels: d.level.Report(),
	})
	if upgrade.Refused(err) {
		return nil, refusedLevel(err)
	}
	if err != nil {
		return nil, fmt.Errorf("joining the cluster with the directory %s: %w", d.config.Dir, err)
	}
	d.auth.Learn(r.Guard)
	d.level.Learn(r.Level)
	return r, nil
}

// requiresAuth determines whether a request needs any right.
func (d *dataNode) requiresAuth(q *kvpb.Request) (requires, lasting bool, refusal *kvpb.Error) {
	if n := d.node(); n != nil {
		return n.RequiresAuth(q)
	}
	// The request is refused, even if the node exists by the time the request is taken.
	return false, false, &kvpb.Error{Code: kvpb.ErrorCode_NODE_UNHEALTHY, Message: d.noNode()}
}

// permissions determines which rights a request needs.
func (d *dataNode) permissions(q *kvpb.Request, needed []access.Permission) ([]access.Permission,
	*kvpb.Error) {
	return d.node().Permissions(q, needed) // once the node exists, it stays
}

// noNode returns why there is no node.
func (d *dataNode) noNode() string {
	if !d.config.has(RoleNode) {
		return "this server holds no data: it is a member of the consistent core only"
	}
	return "this server is starting: it has not joined its cluster yet"
}

// take takes the requests of clients.
func (d *dataNode) take(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) rpc.Work {
	if n := d.node(); n != nil {
		return n.Submit(client, batch, reply)
	}
	text := d.noNode()
	for _, r := range batch {
		reply(&kvpb.Response{Id: r.GetId(),
			Error: &kvpb.Error{Code: kvpb.ErrorCode_NODE_UNHEALTHY, Message: text}})
	}
	return nil
}

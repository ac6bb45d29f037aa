package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/admit"
	"github.com/tidemarkdb/tidemark/range/node/clocks"
	"github.com/tidemarkdb/tidemark/range/node/disks"
	"github.com/tidemarkdb/tidemark/range/node/garbage"
	"github.com/tidemarkdb/tidemark/range/node/giveback"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/leadership"
	"github.com/tidemarkdb/tidemark/range/node/lifecycle"
	"github.com/tidemarkdb/tidemark/range/node/quotas"
	"github.com/tidemarkdb/tidemark/range/node/reports"
	"github.com/tidemarkdb/tidemark/range/node/slowlog"
	requestspans "github.com/tidemarkdb/tidemark/range/node/spans"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	replicametrics "github.com/tidemarkdb/tidemark/range/replica/metrics"
	"github.com/tidemarkdb/tidemark/range/replica/spans"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/peer"
)

// Node is one data node. New makes it, Start starts it, Close ends it.
type Node struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	host    *host.Host
	// shared is what all replicas of the node share.
	shared *replica.Node

	// base is what the rooms share; replicas, leaders and tables are parts of it.
	base     *hosted.Node
	replicas *hosted.Registry
	spans    ownSpans
	tables   *table.Current

	follower    *table.Follower
	lifecycle   *lifecycle.Lifecycle
	orders      orders
	settling    settling
	newChildren newChildren
	merging     merging
	leaders     *hosted.Leaders
	elections   *leadership.Elections
	transfers   *leadership.Transfers
	leaderless  *leadership.Leaderless
	reports     *reports.Reports
	self        *self
	collector   *garbage.Collector
	flusher     *disks.Flusher
	giveBack    *giveback.Worker
	splitter    splitter
	// bundles counts reads of several partitions.
	bundles     atomic.Uint64
	health      health
	disks       *disks.Disks
	clock       *clocks.Clock
	futureReads *clocks.FutureReads
	// slow watches the requests.
	slow *slowlog.Log
	// gate decides when the requests of clients begin.
	gate *admit.Gate
	// quotas are those of the keyspaces.
	quotas *quotas.Quotas

	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	started atomic.Bool
	closed  atomic.Bool
}

// New opens the raft log and reads the last known partition table. Nothing runs before Start.
func New(c Config) (*Node, error) {
	if err := c.ensureDefaults(); err != nil {
		return nil, err
	}
	began := c.Monotonic()
	base := &hosted.Node{ID: c.ID, Log: c.Log, State: c.State, Clock: c.Clock,
		Replicas: hosted.NewRegistry(), Metrics: hosted.NewMetrics(c.Registerer),
		Logger: c.Logger.With("node", c.ID), Random: c.Random,
		Now: func() int64 { return c.Monotonic() - began }}
	n := &Node{config: c, base: base, log: base.Logger, replicas: base.Replicas,
		leaders: hosted.NewLeaders(base.Replicas)}
	base.Leaders, n.health.Health = n.leaders, &base.Health
	cached, err := table.Read(c.Log, c.Cluster)
	switch {
	case errors.Is(err, table.ErrCache):
		n.log.Warn("the partition table on disk is not used; the core will send it", "error", err)
		cached = table.New()
	case err != nil:
		return nil, fmt.Errorf("node %s: %w", c.ID, err)
	}
	n.tables = table.NewCurrent(cached)
	base.Table = n.tables
	base.Health.Refuse(fmt.Sprintf("node %s is starting", c.ID))
	n.elections, n.transfers = leadership.NewElections(base, c.Tick, c.CampaignsPerSecond),
		leadership.NewTransfers(base)
	n.lifecycle = lifecycle.New(base, n, n.elections)
	n.follower = &table.Follower{Cluster: c.Cluster, Source: c.Metadata, Log: c.Log, Table: n.tables,
		Listener: table.Listeners{&n.lifecycle.Reconciler, quotaListener{n}},
		Logger:   n.log, Now: n.base.Now, Jitter: n.base.Jitter}
	n.quotas = quotas.New(c.ID, quotaNode{n}, base.Metrics)
	quotaListener{n}.update(cached.Keyspaces(), nil)
	n.orders.init(n)
	n.settling.init(n)
	n.newChildren.init(n)
	n.merging.init(n)
	n.leaderless = leadership.NewLeaderless(base)
	n.self = &self{node: n}
	n.reports = reports.New(base, n.self, c.Metadata, c.Cluster, c.Server)
	n.collector = garbage.New(base, c.GCInterval)
	n.flusher = disks.NewFlusher(base, c.UnflushedBytes)
	n.splitter.init(n)
	n.disks = disks.New(base, n.transfers, c.Tick, c.electionTimeout())
	n.clock = clocks.New(base)
	n.futureReads = clocks.NewFutureReads(base, n, c.AfterFunc)
	n.metrics = newMetrics(n)
	n.follower.Streams, n.follower.Revision = n.metrics.streams, n.metrics.revision
	n.slow = slowlog.New(slowlog.Config{Node: c.ID, Threshold: c.SlowThreshold,
		KeyspaceOf: n.KeyspaceOf, Client: c.ClientIdentity, Metrics: slowlog.NewMetrics(c.Registerer),
		Spans: requestspans.New(c.Traces, c.ID, c.TraceRate)})
	n.gate = admit.New(admit.Config{Node: c.ID, Server: entrance{n}, Client: c.ClientIdentity,
		Queue: c.Admission, Metrics: admit.NewMetrics(base.Metrics)})
	n.shared = &replica.Node{
		Node: config.Node{
			Watch: watches{n.gate, n.slow},
			Clock: c.Clock, Server: replicaServer{n}, AfterFunc: c.AfterFunc,
			Metrics: replicametrics.New(c.Registerer), Logger: n.log,
			Limits: c.Limits, Pusher: c.Pusher, Quotas: n.quotas, Disks: replicaDisks{n},
		},
		Resolver: c.Resolver, Random: c.Random,
		Clients:  replicaClients{gone: c.Gone, identity: c.ClientIdentity},
		Spans:    spans.Table{Changed: n.lifecycle.Reconciler.SpansChanged},
		Siblings: siblings{n},
	}
	n.lifecycle.Shared = n.shared
	n.giveBack = giveback.New(giveback.Config{
		State: c.State, Log: logs{c.Log, func() *raftlog.Log { return n.host.Log() }},
		Full: n.base.DiskFull, Spans: n.stateSpans,
		Truncations: func() uint64 { return n.host.Truncations() },
		StepBytes:   max(1, int64(c.Log.MinFreeBytes()/giveBackParts)),
		GivenBack:   n.metrics.givenBack.Inc, Logger: n.log,
	})
	if err := n.shared.Prepare(); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.ID, err)
	}
	n.host, err = host.New(host.Config{
		Self: uint64(c.ID), Log: c.Log, Clock: c.Clock, Tick: c.Tick,
		ElectionTicks: c.ElectionTicks,
		SleepAfter:    c.SleepAfter, Shards: c.Shards,
		RetainLogBytes:     c.RetainLogBytes,
		MaxPendingLogBytes: c.MaxPendingLogBytes, MaxInboxBytes: c.MaxInboxBytes,
		FollowersApplyAfter: followersApplyAfter, OnFailed: n.groupFailed, Logger: n.log,
		Registerer: c.Registerer, Random: c.Random,
		Monotonic: c.Monotonic,
	})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", c.ID, err)
	}
	base.Host = n.host
	base.Metrics.Register()
	return n, nil
}

// giveBackParts is the number of parts of the reserve of which entries that remove data may use one
// before room is given back. On the disk an entry takes several times its size.
const giveBackParts = 128

// logs presents the logs of the node's groups to giveback.Worker.
type logs struct {
	*engine.Log
	groups func() *raftlog.Log
}

// GiveBack implements giveback.Log.
func (l logs) GiveBack(ctx context.Context, group keys.PartitionID) error {
	return l.groups().GiveBack(ctx, group)
}

// stateSpans returns the spans of state keys of a partition that is here.
func (n *Node) stateSpans(id keys.PartitionID) []keys.Span {
	if h := n.replicas.Get(id); h != nil && !h.Removed.Load() {
		return h.Replica.StateSpans()
	}
	return nil
}

// followersApplyAfter is how long followers gather entries before they apply them. Reads on
// followers lag by the closed-timestamp lag, which is far longer.
const followersApplyAfter = 5 * time.Millisecond

// Handler handles what the peer transport receives.
func (n *Node) Handler() peer.Handler { return fence{n.host, n} }

// Host returns the node's Raft host, for debugging.
func (n *Node) Host() *host.Host { return n.host }

// Busy reports that the foreground has asked for something a moment ago (package admission).
func (n *Node) Busy(now time.Time) bool { return n.shared.Load.Busy(now) }

// ID is the node's id.
func (n *Node) ID() keys.NodeID { return n.config.ID }

// Table is the partition table as this node knows it.
func (n *Node) Table() *table.Table { return n.tables.Load() }

// Subscribe is table.Current.Subscribe with the leaders that this node's replicas know.
func (n *Node) Subscribe(ctx context.Context, emit func(*clusterpb.TableUpdate) error) error {
	return n.tables.Subscribe(ctx, n.leaders, emit)
}

// SubscribeTo is table.Current.SubscribeTo with the leaders that this node's replicas know.
func (n *Node) SubscribeTo(ctx context.Context, first []uint32, more <-chan []uint32, small int,
	emit func(*clusterpb.TableUpdate) error) error {
	return n.tables.SubscribeTo(ctx, n.leaders, first, more, small, emit)
}

// Resolve returns the address of another node, from the table. The transport calls it.
func (n *Node) Resolve(node uint64) (address string, ok bool) {
	if x := n.tables.Load().Node(keys.NodeID(node)); x != nil && x.Address != "" {
		return x.Address, true
	}
	return "", false
}

// Start opens all replicas that are on disk, and then starts everything. An error comes from the
// disk.
func (n *Node) Start(t host.Transport) error {
	if n.started.Swap(true) {
		return fmt.Errorf("node %s was started before", n.config.ID)
	}
	if err := n.lifecycle.Reopen(); err != nil {
		return err
	}
	n.host.Clocks().Start() // before anything can be elected here
	n.host.Start(t)
	n.elections.AfterStart(n.config.electionTimeout())
	n.health.started.Store(true)
	n.checkHealth()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	for _, task := range []func(context.Context){
		n.follower.Run, n.lifecycle.Run, n.elections.Run, n.reports.Run, n.transfers.Prefer,
		n.watchHealth, n.collector.Run, n.flusher.Run, n.giveBack.Run,
		n.sweepLocks, n.orders.run, n.settling.run, n.newChildren.run, n.splitter.run,
		n.merging.watch, n.gate.Run,
	} {
		n.tasks.Go(func() { task(ctx) })
	}
	return nil
}

// Close ends everything; requests that are still under way are answered. Callers of Handle and the
// transport must have stopped, or stop because of the answers. The databases stay open.
func (n *Node) Close() {
	if n.closed.Swap(true) {
		return
	}
	n.lifecycle.Close()
	n.base.Health.Refuse(fmt.Sprintf("node %s is closing", n.config.ID))
	if n.cancel != nil {
		n.cancel()
	}
	n.tasks.Wait()
	n.futureReads.Close()
	n.host.Close()
	for _, h := range n.replicas.All() {
		h.Replica.Close()
	}
	n.shared.Pool.Close()
	n.shared.Long.Close()
	n.base.Metrics.Close()
}

// Leaderless is leadership.Leaderless.List.
func (n *Node) Leaderless(limit int) (some []*clusterpb.LeaderlessPartition, total, held int) {
	return n.leaderless.List(limit)
}

// Drain hands over all that this node leads: see leadership.Transfers.Drain.
func (n *Node) Drain(ctx context.Context) (left int) { return n.transfers.Drain(ctx) }

// sweepInterval is the interval at which the locks of transactions are checked for those whose
// client is gone. Such locks stay for this time plus the time after which a client counts as gone.
const sweepInterval = time.Second

// sweepLocks checks the locks in the partitions that are led here.
func (n *Node) sweepLocks(ctx context.Context) {
	for backoff.Sleep(ctx, sweepInterval) == nil {
		for _, h := range n.replicas.All() {
			if h.Replica.Locked() && h.Leading.Load() && !h.Removed.Load() {
				h.Replica.Writes().SweepLocks(n.config.Clock.Physical())
			}
		}
	}
}

// Stats is what the node reports of itself to the core, as it is now.
func (n *Node) Stats() *clusterpb.NodeStats { return n.self.Stats() }

// Inspect calls visit for every replica that this node holds, for debugging and tests.
func (n *Node) Inspect(visit func(id keys.PartitionID, r *replica.Replica, g *host.Group)) {
	for id, h := range n.replicas.All() {
		visit(id, h.Replica, h.Group)
	}
}

// groupFailed runs on a worker of the host. The group has reported the end of its leadership.
func (n *Node) groupFailed(keys.PartitionID, error) { n.metrics.failed.Inc() }

// Status is Ready in the form of the Cluster service.
func (n *Node) Status() *clusterpb.StatusResponse {
	ready, reason := n.Ready()
	return &clusterpb.StatusResponse{Cluster: n.config.Cluster, Node: uint64(n.config.ID),
		Ready: ready, WaitingFor: reason}
}

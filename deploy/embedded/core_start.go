package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/placement/bootstrap"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/coordination"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/peer"
)

// open starts this server's member of the core, with its parts of both stores. After an error
// nothing runs.
func (c *coreMember) open(m *bootstrap.Membership) (*corePart, error) {
	if err := c.directory.Join(m.Cluster); err != nil {
		return nil, err
	}
	c.cluster.Store(m.Cluster)
	p := &corePart{self: keys.ReplicaID(m.Replica), registerer: prometheus.WrapRegistererWith(
		prometheus.Labels{"part": "core"}, c.config.Registry)}
	err := c.start(p, m)
	if err == nil {
		err = c.startCoordination(p)
	}
	if err != nil {
		return nil, c.damaged(datadir.Core, errors.Join(err, p.close()))
	}
	return p, nil
}

// start starts this server's member of the core.
func (c *coreMember) start(p *corePart, m *bootstrap.Membership) (err error) {
	identity := raftlog.Identity{Group: keys.CorePartition, Replica: p.self}
	// INVARIANT: only the members with which the core was founded know voters before they have a
	// state. Any other member without a state would vote if it knew voters.
	var founding *storepb.Members
	if m.Founding != nil {
		founding = membership.StoredMembers(m.Founding)
		for _, x := range m.Founding {
			identity.Voters = append(identity.Voters, keys.ReplicaID(x.Replica))
		}
	}
	if p.databases, err = c.openDatabases(datadir.Core, datadir.DatabaseSizes{
		LogMemTable: c.memory.CoreLogMemTable, LogCache: c.memory.CoreLogCache,
		MemTable: c.memory.CoreMemTable, Cache: c.memory.CoreCache}, nil, p.registerer); err != nil {
		return err
	}
	if err := c.directory.BecomeCore(); err != nil {
		return err
	}
	p.store, err = store.New(store.Config{
		State: p.databases.State, Founding: founding, Random: randomReader(c.config.Random),
		Monotonic: c.config.Monotonic, Logger: c.config.Logger, MembersKnow: store.LeastFormat,
		Level:      c.level.Active(),
		Registerer: ofStore(p.registerer, "placement"), MaxPendingBytes: c.memory.Commands,
		Memory: storeMemory(c.memory),
	})
	if err != nil {
		return err
	}
	p.host, err = host.New(host.Config{
		Self: uint64(p.self), Log: p.databases.Log, Clock: c.config.clock(), BelievesClock: true,
		Tick: c.config.Tick, ElectionTicks: c.config.ElectionTicks,
		// Each of the two groups can use an apply worker of its own.
		SleepAfter: -1, Shards: 1, ApplyWorkers: 2, Logger: c.config.Logger, Registerer: p.registerer,
		MaxPendingLogBytes: c.memory.CoreRaftPending, MaxInboxBytes: c.memory.CoreRaftInbox,
		Random:    c.config.Random,
		Monotonic: c.config.Monotonic,
		OnFailed: func(id keys.PartitionID, err error) {
			switch {
			case c.ctx.Err() != nil: // on a full disk, the server was closed while it waited
			case id == keys.CoordinationPartition:
				c.coordinationFailed(err)
			default:
				c.failed(fmt.Errorf("the consistent core's member failed: %w", err))
			}
		},
	})
	if err != nil {
		return err
	}
	c.members.Begin(p.store, p.coordination.Store, m.Known)
	resolve := c.members.Resolve
	p.transport = peer.NewTransport(peer.Config{
		Realm: realmCore, Self: uint64(p.self),
		Cluster: func() uint64 { return m.Cluster },
		Resolve: resolve, Dialer: c.dialer, Handler: p.host,
		Logger: c.config.Logger, Registry: prom.Registry(p.registerer),
		MaxQueuesBytes: c.memory.PeerQueues,
	})
	g, err := p.open(host.GroupConfig{Identity: identity}, p.store)
	if err != nil {
		return err
	}
	p.host.Start(c.config.PeerFilter.before(realmCore, p.transport, resolve))
	p.disk.Start(c.ctx, p.host, c.diskSlow)
	g.Wake()
	p.server, err = server.New(server.Config{
		Store: p.store, Cluster: m.Cluster, Members: m.Known, Levels: *c.config.levels,
		Membership: membership.Config{Group: g, Self: c.versionKnown(),
			Coordination: !c.config.withoutCoordination, Servers: otherServers{c},
			Peers: p.host.Peers(), Own: ownHealth{c, p}},
		Backups: c.backups.Maker(c.backupMember(p)),
		Wake:    c.wakeNode, Proves: c.auth.provesServer,
		Planner: c.config.Planner, MaxClockAhead: c.config.clock().MaxAhead(),
		Physical: c.config.Physical, Monotonic: c.config.Monotonic,
		Logger: c.config.Logger, Registerer: p.registerer,
	})
	if err != nil {
		return err
	}
	c.rpc.ServePeers(p.transport)
	return nil
}

// startCoordination opens the coordination store of a member of the core. If the store is not
// founded yet, it is opened when it is founded.
func (c *coreMember) startCoordination(p *corePart) error {
	if c.config.withoutCoordination {
		return nil
	}
	founding, err := membership.CoordinationFounding(p.store)
	if err != nil {
		return err
	}
	if founding != nil {
		err := c.openCoordination(p, founding)
		if errors.Is(err, group.ErrImplausible) {
			c.coordinationFailed(err)
			err = nil
		}
		return err
	}
	var ctx context.Context
	ctx, p.coordination.end = context.WithCancel(c.ctx)
	p.coordination.waiting.Go(func() {
		for backoff.Sleep(ctx, foundingLook) == nil {
			founding, err := membership.CoordinationFounding(p.store)
			if err == nil && founding != nil {
				err = c.openCoordination(p, founding)
			}
			switch {
			case err != nil && ctx.Err() == nil:
				c.failed(fmt.Errorf("opening %s: %w", coordinationName, err))
				return
			case founding != nil:
				return
			}
		}
	})
	return nil
}

// openCoordination opens the coordination store, which was founded with these members.
//
// INVARIANT: a member that has a log of the coordination store also has the record of the founding,
// durably: the record is flushed before the log is created. So the member opens in the same role as
// before, however old its state is after a crash, and it opens as soon as the server starts.
func (c *coreMember) openCoordination(p *corePart, founding *storepb.Members) error {
	identity := raftlog.Identity{Group: keys.CoordinationPartition, Replica: p.self}
	// INVARIANT: only founders know voters before they have a state. Any other member without a state
	// would vote if it knew voters. See membership.CoordinationFounding.
	if slices.ContainsFunc(founding.Members, func(m *storepb.Member) bool {
		return m.Replica == uint64(p.self)
	}) {
		for _, m := range founding.Members {
			identity.Voters = append(identity.Voters, keys.ReplicaID(m.Replica))
		}
	} else {
		founding = nil
	}
	_, known, err := p.host.Log().Identity(identity.Group)
	if err == nil && !known {
		err = p.databases.State.Flush()
	}
	if err != nil {
		return err
	}
	opened, err := store.New(store.Config{
		State: p.databases.State, Partition: identity.Group, Name: coordinationName,
		Founding: founding, Random: randomReader(c.config.Random), Monotonic: c.config.Monotonic,
		GroupCommands: true, MembersKnow: store.LeastFormat, Level: c.level.Active(),
		MaxTouched:  coordinationMaxTouched,
		MaxWatchers: coordinationMaxWatchers, HistoryFor: c.config.CoreHistory,
		Logger: c.config.Logger, Registerer: ofStore(p.registerer, "coordination"),
		MaxPendingBytes: c.memory.Commands, Memory: storeMemory(c.memory),
		Peers: &coordination.Peers{Cluster: c.cluster.Load(), Conn: c.dialer.Conn,
			Resolve: c.members.Resolve},
	})
	if err != nil {
		return err
	}
	g, err := p.open(host.GroupConfig{Identity: identity, TellCommits: true}, opened)
	if err != nil {
		opened.Close()
		return err
	}
	p.coordination.store.Store(opened)
	p.server.Membership().OpenCoordination(membership.Coordination{Store: opened, Group: g})
	g.Wake()
	return c.etcd.serve(p, g)
}

// versionKnown returns the id of this server if its version need not be asked for.
func (c *coreMember) versionKnown() uint64 {
	if c.config.olderCommands {
		return 0
	}
	return uint64(c.directory.Identity().Server)
}

// otherServers implements membership.Servers with the connections of a member.
type otherServers struct{ c *coreMember }

// Hello implements membership.Servers.
func (o otherServers) Hello(ctx context.Context,
	address string) (*clusterpb.BootstrapHello, error) {
	peers := bootstrap.GRPCPeers{Conn: o.c.dialer.Conn}
	return peers.Hello(ctx, address, &clusterpb.BootstrapHello{})
}

// Inform implements membership.Servers.
func (o otherServers) Inform(ctx context.Context, address string, m *clusterpb.CoreMembers) error {
	conn, err := o.c.dialer.Conn(address)
	if err == nil {
		_, err = clusterpb.NewCoreClient(conn).Inform(ctx, m)
	}
	return err
}

// Check implements membership.Servers.
func (o otherServers) Check(ctx context.Context, address string) (*clusterpb.MemberHealth, error) {
	conn, err := o.c.dialer.Conn(address)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewCoreClient(conn).Check(ctx,
		&clusterpb.CheckRequest{Cluster: o.c.cluster.Load()})
}

// wakeNode tells the node at an address that there are orders for it.
func (c *coreMember) wakeNode(ctx context.Context, address string, node keys.NodeID) error {
	conn, err := c.dialer.Conn(address)
	if err == nil {
		_, err = clusterpb.NewCoreClient(conn).Wake(ctx, &clusterpb.WakeRequest{
			Cluster: c.cluster.Load(), Node: uint64(node)})
	}
	return err
}

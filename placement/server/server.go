package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/backups"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/nodes"
	"github.com/tidemarkdb/tidemark/placement/server/operators"
	"github.com/tidemarkdb/tidemark/placement/server/quotas"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Config has the dependencies and settings of a Server. Store, Cluster and Members must be set.
type Config struct {
	// Store is the store of this member. The Server does not close it.
	Store   *store.Store
	Cluster uint64
	// Members are the known members of the core. They are used until the store has a record of
	// members.
	Members []*clusterpb.CoreMember
	// Levels are the levels of formats and messages that this member's program supports. The zero
	// value is that of versions from before there were levels.
	Levels release.Range
	// Membership configures how the core's members are changed and watched. New sets Meta, Store, Flag
	// and Logger. The other fields must be set.
	Membership membership.Config
	// Wake tells the node at an address that it has new orders. If Wake is nil, nodes get their orders
	// with their next heartbeat.
	Wake func(ctx context.Context, address string, node keys.NodeID) error

	// Proves returns an error if a caller has not proved to be a server of the cluster. It returns nil
	// for a caller on this machine, which needs no proof. If Proves is nil, every caller is accepted.
	Proves func(context.Context) error

	// MaxClockAhead is the maximum by which the timestamps of one server may be ahead of another
	// server's clock (hlc.Clock.MaxAhead). Positions of consumers may not be further ahead. The
	// default is 500 ms.
	MaxClockAhead time.Duration
	// Physical and Monotonic are the clocks that measure how far consumers are behind
	// (consumer/time.go). The default is the clocks of the system.
	Physical  hlc.Physical
	Monotonic hlc.Monotonic
	// MaxConsumers limits the consumers of all keyspaces. The leader enforces it by its last count.
	// The default is 100,000.
	MaxConsumers int
	// Backups makes backups. If it is nil, the cluster makes no backups.
	Backups backups.Maker
	// Planner has the planner's settings that operators of the cluster cannot set or have not set. The
	// zero value means the planner's defaults.
	Planner planner.Settings

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (c *Config) ensureDefaults() error {
	if c.Store == nil || c.Cluster == 0 || len(c.Members) == 0 {
		return errors.New("placement server: Store, Cluster and Members must be set")
	}
	if c.MaxClockAhead <= 0 {
		c.MaxClockAhead = 2 * hlc.DefaultMaxOffset
	}
	if c.Physical == nil {
		c.Physical = hlc.System()
	}
	if c.Monotonic == nil {
		c.Monotonic = hlc.SystemMonotonic()
	}
	if c.MaxConsumers <= 0 {
		c.MaxConsumers = 100_000
	}
	if c.Proves == nil {
		c.Proves = func(context.Context) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Server is a core member's side of placement. It implements clusterpb.CoreServer, and answers the
// calls of ClusterService that need the core.
type Server struct {
	clusterpb.UnimplementedCoreServer
	config Config
	meta   *meta.Records
	table  *table.Streams
	heard
	keyspaces *keyspaces.Keyspaces
	operators *operators.Operators
	nodes     *nodes.Nodes
	metrics   *metrics

	scheduler scheduler

	membership *membership.Membership
	consumers  *consumer.Keeper
	backups    *backups.Backups
	demands
	background
}

// heard has the data that the core's leader collects from heartbeats.
type heard struct {
	reports *reports.Reports
	quotas  *quotas.Quotas
}

// demands has the conditions that a server must meet before the core lets it take part.
type demands struct {
	flag    *authflag.Flag
	upgrade *upgrade.Upgrade
}

// background has the goroutines of a Server. They end with ctx.
type background struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	// poked wakes the stepper. Capacity 1.
	poked chan struct{}
}

// New starts a Server.
func New(config Config) (*Server, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	s := &Server{config: config}
	s.reports, s.quotas = reports.New(), quotas.New(config.Monotonic)
	s.poked = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.meta = meta.New(s.ctx, config.Store, config.Cluster, config.Members)
	s.consumers = consumer.NewKeeper(consumer.Config{Meta: s.meta, Store: config.Store,
		Clocks: s.reports.Clocks, MaxClockAhead: config.MaxClockAhead,
		MaxConsumers: config.MaxConsumers,
		Physical:     config.Physical, Monotonic: config.Monotonic, Logger: config.Logger})
	s.backups = backups.New(backups.Config{Meta: s.meta, Store: config.Store,
		Maker: config.Backups, Now: time.Now, Logger: config.Logger})
	s.table = table.New(s.ctx, s.meta, config.Store)
	s.keyspaces = keyspaces.New(keyspaces.Config{Meta: s.meta, Store: config.Store,
		Forget: s.reports.Drop, Poke: s.poke, Logger: config.Logger})
	s.operators = operators.New(operators.Config{Meta: s.meta, Store: config.Store,
		Reports: s.reports, Table: &s.scheduler, Poke: s.poke, Logger: config.Logger})
	s.flag = authflag.New(authflag.Config{Meta: s.meta, Store: config.Store, Proves: config.Proves,
		Notify: s.reports.WakeNode, Logger: config.Logger})
	s.upgrade = upgrade.New(upgrade.Config{Meta: s.meta, Store: config.Store,
		Supported: config.Levels, Silent: config.Membership.Peers.Down, Notify: s.reports.WakeNode,
		Logger: config.Logger})
	s.nodes = nodes.New(nodes.Config{Meta: s.meta, Store: config.Store, Reports: s.reports,
		Quotas: s.quotas,
		Flag:   s.flag, Upgrade: s.upgrade, Planner: &s.scheduler, Orders: s.operators.Orders,
		Wake: config.Wake, Poke: s.poke, Cluster: config.Cluster, Monotonic: config.Monotonic,
		Logger: config.Logger})
	members := config.Membership
	members.Meta, members.Store, members.Flag = s.meta, config.Store, s.flag
	members.Upgrade, members.Logger = s.upgrade, config.Logger
	s.membership = membership.New(s.ctx, members)
	var err error
	if s.metrics, err = newMetrics(s, config.Registerer); err != nil {
		s.cancel()
		return nil, err
	}
	s.scheduler.server = s
	s.running.Go(s.step)
	s.membership.Start()
	s.running.Go(func() { s.consumers.Run(s.ctx) })
	s.running.Go(s.scheduler.run)
	s.running.Go(func() { s.backups.Run(s.ctx) })
	s.running.Go(func() { s.upgrade.Run(s.ctx) })
	if config.Wake != nil {
		s.running.Go(func() { s.reports.Notify(s.ctx, s.nodes.Tell) })
	}
	return s, nil
}

// Close stops the goroutines. Calls and streams that are under way end soon afterwards. The store
// must be closed after that.
func (s *Server) Close() {
	s.cancel()
	s.running.Wait()
	s.membership.Wait()
	s.metrics.close()
}

// Members returns the members of the core.
func (s *Server) Members() []*clusterpb.CoreMember { return s.meta.Members() }

// LeaderAddress returns the address of the core's leader. It is empty if this member does not know
// the leader.
func (s *Server) LeaderAddress() string { return s.meta.LeaderAddress() }

// Membership returns the part that changes the members of the core. s may be nil, on a server that
// is no member: then the result is nil.
func (s *Server) Membership() *membership.Membership {
	if s == nil {
		return nil
	}
	return s.membership
}

// Table returns this member's partition table.
func (s *Server) Table() table.Source { return s.table }

// Keyspaces returns the part that creates, alters and drops keyspaces.
func (s *Server) Keyspaces() *keyspaces.Keyspaces { return s.keyspaces }

// Nodes returns the part that manages data nodes.
func (s *Server) Nodes() *nodes.Nodes { return s.nodes }

// Operators returns the part that manages operators.
func (s *Server) Operators() *operators.Operators { return s.operators }

// Backups returns the part that makes backups.
func (s *Server) Backups() *backups.Backups { return s.backups }

// Consumers returns the part that manages consumers of changes.
func (s *Server) Consumers() *consumer.Keeper { return s.consumers }

// Upgrade returns the part that raises the level of the cluster.
func (s *Server) Upgrade() *upgrade.Upgrade { return s.upgrade }

// RegisterNode implements clusterpb.CoreServer. Only the leader answers.
func (s *Server) RegisterNode(
	ctx context.Context, r *clusterpb.RegisterNodeRequest,
) (*clusterpb.RegisterNodeResponse, error) {
	return s.nodes.Register(ctx, r)
}

// Heartbeat implements clusterpb.CoreServer. Only the leader answers.
func (s *Server) Heartbeat(
	ctx context.Context, r *clusterpb.HeartbeatRequest,
) (*clusterpb.HeartbeatResponse, error) {
	return s.nodes.Heartbeat(ctx, r)
}

// Announce implements clusterpb.CoreServer. Only the leader answers.
func (s *Server) Announce(
	ctx context.Context, r *clusterpb.AnnounceRequest,
) (*clusterpb.AnnounceResponse, error) {
	return s.membership.Announce(ctx, r)
}

// Check implements clusterpb.CoreServer. Any member answers, whether it leads or not.
func (s *Server) Check(
	ctx context.Context, r *clusterpb.CheckRequest,
) (*clusterpb.MemberHealth, error) {
	return s.membership.Health(ctx, r)
}

// Guarding implements clusterpb.CoreServer. Only the leader answers.
func (s *Server) Guarding(
	ctx context.Context, r *clusterpb.GuardingRequest,
) (*clusterpb.GuardingResponse, error) {
	return s.flag.Change(ctx, r)
}

// Guarded reports whether servers must follow users and roles. Only the leader answers.
func (s *Server) Guarded(ctx context.Context) (bool, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return false, err
	}
	guard, _, err := authflag.Load(v)
	return guard.GetOn(), err
}

// Parts returns the member's store and its part of the coordination store (see coordination.Parts).
// s is nil on a server that is no member.
func (s *Server) Parts(cluster uint64) (core, part *store.Store, err error) {
	if s == nil {
		return nil, nil, nil
	}
	return s.config.Store, s.membership.Part(), s.meta.CheckCluster(cluster)
}

// Trouble returns what prevents this member from reaching a leader with a quorum. It returns nil if
// the member knows a leader and hears from enough members.
func (s *Server) Trouble() *coreclient.UnavailableError {
	e := &coreclient.UnavailableError{Leaderless: s.meta.LeaderAddress() == ""}
	for _, m := range s.meta.Members() {
		if m.Role == clusterpb.ReplicaRole_LEARNER {
			continue // it has no vote
		}
		e.Core = append(e.Core, m.Address)
		if s.config.Membership.Peers.Down(m.Replica) {
			e.Silent, e.Reasons = append(e.Silent, m.Address), append(e.Reasons, errNothingHeard)
		} else {
			e.Reachable = append(e.Reachable, m.Address)
		}
	}
	if !e.NoQuorum() {
		return nil
	}
	return e
}

var errNothingHeard = errors.New("nothing is heard of it")

func (s *Server) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

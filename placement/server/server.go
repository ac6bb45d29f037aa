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
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Config is what a Server is made of. Store, Cluster and Members must be set.
type Config struct {
	// Store is this member's. The Server does not close it.
	Store   *store.Store
	Cluster uint64
	// Members are the members of the core, as they are known while the store has none.
	Members []*clusterpb.CoreMember
	// Group is the Raft group of the store. nil: members cannot be changed.
	Group membership.Group
	// Hello asks the server at an address which one it is. nil: members cannot be changed.
	Hello func(ctx context.Context, address string) (*clusterpb.BootstrapHello, error)
	// Self is the id of this server, which it does not ask what its version knows. 0: it asks.
	Self uint64
	// Silent says that nothing has been heard of another member for an election timeout; nil: not
	// known.
	Silent func(replica uint64) bool
	// Averse says that another member leaves the lead to others at present: its disk is slow or
	// stalls, or it is about to stop. Nil: not known.
	Averse func(replica uint64) bool

	// Coordination says that members keep a coordination store beside this one, which is founded as
	// soon as that can be. It needs Hello.
	Coordination bool

	// Inform tells the server at an address which members the core has. nil: none is told.
	Inform func(ctx context.Context, address string, m *clusterpb.CoreMembers) error
	// Wake tells the node at an address that there are orders for it. nil: none is told, and orders
	// wait for the nodes' heartbeats.
	Wake func(ctx context.Context, address string, node keys.NodeID) error

	// Check asks the member of the core at an address how it is. NotReady says why this server is not
	// ready, and CoordinationErr why its part of the coordination store has failed; nil if it has
	// not. Disk says how the disk of the log is. Any of them may be nil: that is not known then.
	Check           func(ctx context.Context, address string) (*clusterpb.MemberHealth, error)
	NotReady        func() []string
	CoordinationErr func() error
	Disk            func() membership.DiskState

	// Proves says why a caller has not proved to be a server of the cluster; nil if it has, or if it
	// is on this machine and needs no proof. nil: all have.
	Proves func(context.Context) error

	// NodeLease is how long a node counts as alive after its last heartbeat. Default 9 s.
	NodeLease time.Duration
	// DefaultReplicas is how many replicas a keyspace has that does not say. Default 3.
	DefaultReplicas uint32
	// DefaultGCWindow is how long old versions are kept in a keyspace that does not say. Default 1 h.
	DefaultGCWindow time.Duration
	// ClosedTimestampLag is that of new keyspaces. Default 1 s.
	ClosedTimestampLag time.Duration
	// MaxClockAhead is how far the timestamps of one server can be ahead of another's clock
	// (hlc.Clock.MaxAhead): positions of consumers are no further. Default 500 ms.
	MaxClockAhead time.Duration
	// Physical and Monotonic are the clocks by which it is found how far consumers are behind
	// (consumers_time.go). Default: the system's.
	Physical  hlc.Physical
	Monotonic hlc.Monotonic
	// MaxKeyspaces and MaxPartitions bound what the cluster has. Defaults 10,000 and 1,000,000.
	MaxKeyspaces, MaxPartitions int
	// MaxConsumers bounds the consumers of all keyspaces, as of what the leader has seen lately.
	// Default 100,000.
	MaxConsumers int
	// Planner are the settings of the planner that cannot be, or were not, set by an operator of the
	// cluster. Zero: its defaults.
	Planner planner.Settings

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (c *Config) ensureDefaults() error {
	if c.Store == nil || c.Cluster == 0 || len(c.Members) == 0 {
		return errors.New("placement server: Store, Cluster and Members must be set")
	}
	if c.NodeLease <= 0 {
		c.NodeLease = 9 * time.Second
	}
	if c.DefaultReplicas == 0 {
		c.DefaultReplicas = 3
	}
	if c.DefaultGCWindow <= 0 {
		c.DefaultGCWindow = time.Hour
	}
	if c.ClosedTimestampLag <= 0 {
		c.ClosedTimestampLag = time.Second
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
	if c.MaxKeyspaces <= 0 {
		c.MaxKeyspaces = 10_000
	}
	if c.MaxPartitions <= 0 {
		c.MaxPartitions = 1_000_000
	}
	if c.MaxConsumers <= 0 {
		c.MaxConsumers = 100_000
	}
	if c.Silent == nil {
		c.Silent = func(uint64) bool { return false }
	}
	if c.Averse == nil {
		c.Averse = func(uint64) bool { return false }
	}
	if c.Proves == nil {
		c.Proves = func(context.Context) error { return nil }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Server is a core member's side of placement. It implements clusterpb.CoreServer, and is the
// backend of ClusterService on its server.
type Server struct {
	clusterpb.UnimplementedCoreServer
	config    Config
	store     *store.Store
	meta      *meta.Records
	table     *table.Streams
	reports   *reports.Reports
	keyspaces *keyspaces.Keyspaces
	metrics   *metrics

	scheduler scheduler

	// poked wakes the stepper. Capacity 1.
	poked      chan struct{}
	membership *membership.Membership
	consumers  *consumer.Keeper
	flag       *authflag.Flag
	ctx        context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup
}

// New starts a Server.
func New(config Config) (*Server, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	s := &Server{config: config, store: config.Store, reports: reports.New(),
		poked: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.meta = meta.New(s.ctx, config.Store, config.Cluster, config.Members)
	s.consumers = consumer.NewKeeper(consumer.Config{Meta: s.meta, Store: config.Store,
		Clocks: s.reports.Clocks, DefaultGCWindow: config.DefaultGCWindow,
		MaxClockAhead: config.MaxClockAhead, MaxConsumers: config.MaxConsumers,
		Physical: config.Physical, Monotonic: config.Monotonic, Logger: config.Logger})
	s.table = table.New(s.ctx, s.meta, config.Store)
	s.keyspaces = keyspaces.New(keyspaces.Config{Meta: s.meta, Store: config.Store,
		DefaultReplicas: config.DefaultReplicas, DefaultGCWindow: config.DefaultGCWindow,
		ClosedTimestampLag: config.ClosedTimestampLag, MaxKeyspaces: config.MaxKeyspaces,
		MaxPartitions: config.MaxPartitions, Forget: s.reports.Drop, Poke: s.poke,
		Logger: config.Logger})
	s.flag = authflag.New(authflag.Config{Meta: s.meta, Store: config.Store, Proves: config.Proves,
		Notify: s.reports.WakeNode, Logger: config.Logger})
	s.membership = membership.New(s.ctx, membership.Config{Meta: s.meta, Store: config.Store,
		Flag: s.flag, Self: config.Self, Logger: config.Logger,
		Group: config.Group, Coordination: config.Coordination, Hello: config.Hello,
		Silent: config.Silent, Averse: config.Averse, Inform: config.Inform, Check: config.Check,
		NotReady: config.NotReady, CoordinationErr: config.CoordinationErr, Disk: config.Disk})
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
	if config.Wake != nil {
		s.running.Go(func() { s.reports.Notify(s.ctx, s.tellNode) })
	}
	return s, nil
}

// Close ends what runs. Calls and streams that are under way end by themselves soon; the store is
// closed after that.
func (s *Server) Close() {
	s.cancel()
	s.running.Wait()
	s.membership.Wait()
	s.metrics.close()
}

// Members returns the members of the core.
func (s *Server) Members() []*clusterpb.CoreMember { return s.meta.Members() }

// LeaderAddress is where the core's leader is, as far as this member knows; empty if it does not.
func (s *Server) LeaderAddress() string { return s.meta.LeaderAddress() }

// Membership is what changes the members of the core; nil if s is nil, which it is of a server that
// is no member.
func (s *Server) Membership() *membership.Membership {
	if s == nil {
		return nil
	}
	return s.membership
}

// Table is the partition table as this member has it.
func (s *Server) Table() table.Source { return s.table }

// Keyspaces creates, alters and drops keyspaces.
func (s *Server) Keyspaces() *keyspaces.Keyspaces { return s.keyspaces }

// Consumers are the consumers of changes.
func (s *Server) Consumers() *consumer.Keeper { return s.consumers }

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

// Guarding implements clusterpb.CoreServer. Only the leader does it.
func (s *Server) Guarding(
	ctx context.Context, r *clusterpb.GuardingRequest,
) (*clusterpb.GuardingResponse, error) {
	return s.flag.Change(ctx, r)
}

// Guarded says whether servers have to follow users and roles. Only the leader does it.
func (s *Server) Guarded(ctx context.Context) (bool, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return false, err
	}
	guard, _, err := authflag.Load(v)
	return guard.GetOn(), err
}

// Parts gives the member's store and its part of the coordination store, as coordination.Parts
// says. s is nil of a server that is no member.
func (s *Server) Parts(cluster uint64) (core, part *store.Store, err error) {
	if s == nil {
		return nil, nil, nil
	}
	return s.store, s.membership.Part(), s.meta.CheckCluster(cluster)
}

// Trouble is what keeps this member from a leader with a quorum, as far as it can tell: nil if it
// knows a leader and hears enough of the members.
func (s *Server) Trouble() *coreclient.UnavailableError {
	e := &coreclient.UnavailableError{Leaderless: s.meta.LeaderAddress() == ""}
	for _, m := range s.meta.Members() {
		if m.Role == clusterpb.ReplicaRole_LEARNER {
			continue // it decides nothing
		}
		e.Core = append(e.Core, m.Address)
		if s.config.Silent(m.Replica) {
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

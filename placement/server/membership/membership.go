package membership

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Config configures a Membership. Meta, Store, Flag, Upgrade and Logger must be set, and Silent and
// Averse.
type Config struct {
	Meta    *meta.Records
	Store   *store.Store
	Flag    *authflag.Flag
	Upgrade *upgrade.Upgrade
	Logger  *slog.Logger
	// Self is the id of this server, which need not ask itself what its version knows. 0: it asks.
	Self uint64

	// Group is the Raft group of the store. nil: members cannot be changed.
	Group Group
	// Coordination says that members keep a coordination store beside this one, which is founded as
	// soon as that can be. It needs Hello.
	Coordination bool
	// Hello asks the server at an address which one it is. nil: members cannot be changed.
	Hello func(ctx context.Context, address string) (*clusterpb.BootstrapHello, error)
	// Silent says that nothing has been heard of another member for an election timeout. Averse says
	// that another member leaves the lead to others at present: its disk is slow or stalls, or it is
	// about to stop.
	Silent, Averse func(replica uint64) bool
	// Inform tells the server at an address which members the core has. nil: servers are not told.
	Inform func(ctx context.Context, address string, m *clusterpb.CoreMembers) error
	// Check asks the member of the core at an address how it is. nil: not known.
	Check func(ctx context.Context, address string) (*clusterpb.MemberHealth, error)
	// Own is what this server knows of its own health.
	Own OwnHealth
}

// OwnHealth is what a server knows of its own health.
type OwnHealth struct {
	// NotReady and CoordinationErr return why this server, and its part of the coordination store,
	// do not serve; Disk returns the state of the log's disk. nil: not known.
	NotReady        func() []string
	CoordinationErr func() error
	Disk            func() DiskState
}

// Membership changes the members of the core, has those of the coordination store follow, and knows
// which versions all of them run.
type Membership struct {
	config Config
	store  *store.Store
	meta   *meta.Records
	flag   *authflag.Flag

	core         coreChanges
	versions     versions
	coordination coordinationState

	ctx     context.Context
	running sync.WaitGroup
}

// New makes the membership of a member of the core. ctx ends what runs.
func New(ctx context.Context, config Config) *Membership {
	s := &Membership{config: config, store: config.Store, meta: config.Meta, flag: config.Flag,
		ctx: ctx}
	s.core.init()
	s.versions.mu.heard = map[uint64]memberVersion{}
	s.versions.changed = make(chan struct{}, 1)
	s.coordination.left = make(chan struct{})
	return s
}

// Start begins to change members and to ask them for their versions, until the context ends.
func (s *Membership) Start() {
	s.running.Go(s.stepCore)
	if s.config.Hello != nil {
		s.running.Go(s.weighChanges)
		s.running.Go(s.learnVersions)
	}
}

// Poke makes the leader look at once whether the members have to be changed.
func (s *Membership) Poke() { s.core.poke() }

// Wait returns when what start and OpenCoordination began has ended.
func (s *Membership) Wait() { s.running.Wait() }

// Part is this member's part of the coordination store; nil until that is open.
func (s *Membership) Part() *store.Store {
	if c := s.coordination.part.Load(); c != nil {
		return c.Store
	}
	return nil
}

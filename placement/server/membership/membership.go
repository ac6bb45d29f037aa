package membership

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Config configures a Membership. Meta, Store, Flag and Logger must be set, and Silent and Averse.
// For the others server.Config says what they are for, and what happens if they are nil.
type Config struct {
	Meta   *meta.Records
	Store  *store.Store
	Flag   *authflag.Flag
	Self   uint64
	Logger *slog.Logger

	Group        Group
	Coordination bool
	Hello        func(ctx context.Context, address string) (*clusterpb.BootstrapHello, error)
	Silent       func(replica uint64) bool
	Averse       func(replica uint64) bool
	Inform       func(ctx context.Context, address string, m *clusterpb.CoreMembers) error
	Check        func(ctx context.Context, address string) (*clusterpb.MemberHealth, error)
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

package membership

import (
	"context"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/server/authflag"
	"github.com/tidemarkdb/tidemark/placement/server/membership/versions"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Membership changes the members of the core, makes the members of the coordination store follow
// them, and knows which versions all of them run.
type Membership struct {
	config Config
	store  *store.Store
	meta   *meta.Records
	flag   *authflag.Flag

	core         coreChanges
	versions     *versions.Versions
	coordination coordinationState

	ctx     context.Context
	running sync.WaitGroup
}

// New makes the Membership of a member of the core. Its goroutines end with ctx.
func New(ctx context.Context, config Config) *Membership {
	s := &Membership{config: config, store: config.Store, meta: config.Meta, flag: config.Flag,
		ctx: ctx}
	s.core.init()
	s.versions = versions.New(versions.Config{Store: config.Store, Members: asked{s},
		Self: config.Self, Logger: config.Logger})
	s.coordination.left = make(chan struct{})
	return s
}

// Start starts the changes of members and the questions about versions. They run until the context
// ends.
func (s *Membership) Start() {
	s.running.Go(s.stepCore)
	s.running.Go(func() { s.versions.WeighChanges(s.ctx) })
	s.running.Go(func() { s.versions.Learn(s.ctx) })
}

// Poke makes the leader check at once whether the members have to be changed.
func (s *Membership) Poke() { s.core.poke() }

// Wait returns when the goroutines of Start and OpenCoordination have ended.
func (s *Membership) Wait() { s.running.Wait() }

// Part returns this member's part of the coordination store. It is nil until the part is open.
func (s *Membership) Part() *store.Store {
	if c := s.coordination.part.Load(); c != nil {
		return c.Store
	}
	return nil
}

// asked adapts a Membership to the interface that package versions needs.
type asked struct{ s *Membership }

// Hello implements versions.Members.
func (a asked) Hello(ctx context.Context, address string) (*clusterpb.BootstrapHello, error) {
	return a.s.hello(ctx, address)
}

// Silent implements versions.Members.
func (a asked) Silent(replica uint64) bool { return a.s.config.Peers.Down(replica) }

// Second implements versions.Members.
func (a asked) Second() *store.Store { return a.s.Part() }

// Versions returns what is known of the versions that the members run. s may be nil, on a server
// that is no member: then the result is nil.
func (s *Membership) Versions() *versions.Versions {
	if s == nil {
		return nil
	}
	return s.versions
}

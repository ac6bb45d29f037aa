package authcache

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Cache knows users. It implements access.Guard.
type Cache struct {
	config  Config
	metrics *metrics
	audit   auditor

	// tables is what clients are judged by; never nil. until is up to when, by Config.Monotonic, and
	// index what of the coordination store's log the tables have at least.
	//
	// INVARIANT: until and index are written after the tables that they are for, and read before.
	tables atomic.Pointer[tables]
	until  atomic.Int64
	index  atomic.Uint64

	// news has Run look again, urge has the core asked at once. Capacity 1 each.
	news, urge chan struct{}
	// saving is held while a mark is written.
	saving sync.Mutex

	mu struct {
		sync.Mutex
		// mark is on disk, wanted is what the core has told.
		mark, wanted Flag
		// heard is the newest version of users and roles; nil: none since the server started.
		heard *authority.State
	}
}

// tables is one version of what clients are judged by. It is not changed.
type tables struct {
	// version is another one for each.
	version uint64
	// free: all clients may do everything.
	free bool
	// state is nil if nothing was heard yet.
	state *authority.State
}

var _ access.Guard = (*Cache)(nil)

// New makes a Cache. It decides at once, and follows while Run runs.
func New(config Config) (*Cache, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	g := &Cache{config: config, news: make(chan struct{}, 1), urge: make(chan struct{}, 1)}
	g.audit.cache = g
	g.mu.mark, g.mu.wanted = config.Mark, config.Mark
	g.until.Store(math.MinInt64)
	g.tables.Store(&tables{free: !config.Mark.On})
	var err error
	if g.metrics, err = newMetrics(g, config.Registerer); err != nil {
		return nil, err
	}
	return g, nil
}

// Close takes back the metrics.
func (g *Cache) Close() { g.metrics.close() }

// Learn takes note of what the core says of whether servers have to follow. It does not block; a
// version that is not newer than what is known changes nothing.
func (g *Cache) Learn(s *clusterpb.GuardState) {
	m := flagOf(s)
	g.mu.Lock()
	newer := m.Version > g.mu.wanted.Version
	if newer {
		g.mu.wanted = m
	}
	// A mark that could not be written is tried again.
	due := newer || g.mu.wanted != g.mu.mark
	g.mu.Unlock()
	if due {
		signal(g.news)
	}
}

// Adopt is Learn for a server that holds no data yet: the mark is on disk when it returns.
func (g *Cache) Adopt(s *clusterpb.GuardState) error {
	g.Learn(s)
	return g.settle(true)
}

// Mark is what is on disk.
func (g *Cache) Flag() Flag {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.mark
}

// Report is what the server says of itself to the core.
func (g *Cache) Report() *clusterpb.GuardReport {
	return &clusterpb.GuardReport{Knows: true, Guard: g.Flag().state()}
}

// settle writes down what the core wants, if that can be gone by: to follow takes tables that are
// current, unless anyhow.
func (g *Cache) settle(anyhow bool) error {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.mu.Lock()
	mark, wanted := g.mu.mark, g.mu.wanted
	g.mu.Unlock()
	if wanted.Version <= mark.Version {
		return nil
	}
	if wanted.On && !mark.On && g.config.Data && !anyhow && !g.current() {
		return nil
	}
	if err := g.config.Save(wanted); err != nil {
		g.config.Logger.Error("whether this server has to follow users and roles could not be written "+
			"down; it goes on as before", "error", err)
		return err
	}
	g.mu.Lock()
	g.mu.mark = wanted
	g.showLocked()
	g.mu.Unlock()
	if wanted.On != mark.On {
		g.config.Logger.Info("whether this server follows users and roles has changed", "follow",
			wanted.On, "version", wanted.Version)
	}
	if g.config.Changed != nil {
		g.config.Changed(wanted)
	}
	return nil
}

// showLocked has clients judged by what is known now.
func (g *Cache) showLocked() {
	now := g.tables.Load()
	next := &tables{version: now.version, free: !g.mu.mark.On}
	if !next.free {
		next.state = g.mu.heard
	}
	if *next != *now {
		next.version++
		g.tables.Store(next)
	}
}

// current says that the tables that were heard are current.
func (g *Cache) current() bool { return g.config.Monotonic() <= g.until.Load() }

// Run follows the core until ctx ends.
func (g *Cache) Run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var stopFollowing context.CancelFunc
	for {
		_ = g.settle(false) // it is logged, and tried again when the core tells of it again
		g.mu.Lock()
		follow := g.mu.mark.On || g.mu.wanted.On
		g.mu.Unlock()
		switch {
		case follow && stopFollowing == nil:
			inner, stop := context.WithCancel(ctx)
			stopFollowing = stop
			following.Go(func() {
				defer stop()
				g.follow(inner)
			})
		case !follow && stopFollowing != nil:
			stopFollowing()
			following.Wait()
			stopFollowing = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-g.news:
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Mark is whether a server has to follow users and roles, as it has it on disk.
type Flag struct {
	// Version counts the changes that the core has made; 0: none is known.
	Version uint64
	// On: it has to follow.
	On bool
}

func flagOf(s *clusterpb.GuardState) Flag { return Flag{s.GetVersion(), s.GetOn()} }

func (m Flag) state() *clusterpb.GuardState {
	return &clusterpb.GuardState{Version: m.Version, On: m.On}
}

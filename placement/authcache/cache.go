package authcache

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Cache holds users and roles, and answers what clients may do. It implements access.Guard.
type Cache struct {
	config  Config
	metrics *metrics
	audit   auditor

	// tables holds the users and roles in use; never nil. until is the time, by Config.Monotonic,
	// up to which the tables are complete, and index the index of the coordination store's log that
	// they include.
	//
	// INVARIANT: until and index are written after the tables to which they belong, and read before
	// them.
	tables atomic.Pointer[tables]
	until  atomic.Int64
	index  atomic.Uint64

	// news makes Run look again, urge makes it ask the core at once. Capacity 1 each.
	news, urge chan struct{}
	// saving is held while a mark is written.
	saving sync.Mutex

	mu struct {
		sync.Mutex
		// mark is the mark on disk, wanted the mark that the core has sent.
		mark, wanted Flag
		// heard is the newest version of users and roles; nil: none has come since the server
		// started.
		heard *authority.State
	}
}

// tables is one version of users and roles, with what follows for clients. It is never changed.
type tables struct {
	// version is unique.
	version uint64
	// free is set if all clients may do everything.
	free bool
	// state is nil if nothing has come yet.
	state *authority.State
}

var _ access.Guard = (*Cache)(nil)

// New makes a Cache. It answers at once, and follows the core while Run runs.
func New(config Config) (*Cache, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	g := &Cache{config: config, news: make(chan struct{}, 1), urge: make(chan struct{}, 1)}
	g.audit.log = config.Logger
	g.mu.mark, g.mu.wanted = config.Mark, config.Mark
	g.until.Store(math.MinInt64)
	g.tables.Store(&tables{free: !config.Mark.On})
	var err error
	if g.metrics, err = newMetrics(g, config.Registerer); err != nil {
		return nil, err
	}
	return g, nil
}

// Close unregisters the metrics.
func (g *Cache) Close() { g.metrics.close() }

// Learn takes the core's word whether servers must follow users and roles. It does not block; a
// version that is not newer than the known one changes nothing.
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

// Flag returns the mark on disk.
func (g *Cache) Flag() Flag {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.mark
}

// Report returns what the server reports of itself to the core.
func (g *Cache) Report() *clusterpb.GuardReport {
	return &clusterpb.GuardReport{Knows: true, Guard: g.Flag().state()}
}

// settle writes the wanted mark, if it can be put into effect: turning it on needs current tables,
// unless anyhow is set.
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

// showLocked puts what is known now into effect for clients.
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

// current reports that the tables are current.
func (g *Cache) current() bool { return g.config.Monotonic() <= g.until.Load() }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

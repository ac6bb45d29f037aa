package releasemark

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Levels are the levels that a server has recorded on its disk.
type Levels struct {
	// Noted is the highest level that was active or coming. Active is the active level.
	Noted, Active release.Level
}

// Config configures a Mark. Save and Logger must be set.
type Config struct {
	// Supported is the range of levels that the server's program supports.
	Supported release.Range
	// Kept are the levels on the server's disk. Save records other levels there, durably, before it
	// returns. Only one goroutine calls Save.
	Kept Levels
	Save func(Levels) error
	// Changed, if not nil, is called by that goroutine after the server has noted a level, or has made
	// a level active.
	Changed func()
	Logger  *slog.Logger
	// Registerer receives the metrics, until Close. It may be nil.
	Registerer prometheus.Registerer
}

// Mark is the cluster's level as known to a server. Safe for concurrent use.
type Mark struct {
	config  Config
	active  release.Active
	metrics []prometheus.Collector
	// news wakes Run. Capacity 1.
	news chan struct{}
	mu   struct {
		sync.Mutex
		// kept are the levels on disk. told are the levels that the core has last reported.
		kept, told Levels
	}
}

// Check returns an error if a server that has recorded levels cannot start with a program that
// supports other levels. A server that belongs to no cluster yet can start with every program. A
// server that has recorded no levels can too: its cluster may have a version from before there were
// levels, or the server stopped between its registration and its first record. The core knows the
// levels of the cluster, and refuses the registration of a server whose program does not support
// them (placement/server/upgrade).
func Check(supported release.Range, kept Levels, joined bool) error {
	if !joined || kept == (Levels{}) {
		return nil
	}
	// While the noted and the active level differ, the server may be sent formats of either level.
	for _, l := range []release.Level{max(kept.Noted, kept.Active), kept.Active} {
		if why := supported.Refusal(l); why != "" {
			return errors.New(why)
		}
	}
	return nil
}

// New makes a Mark. It learns while Run is running.
func New(config Config) (*Mark, error) {
	m := &Mark{config: config, news: make(chan struct{}, 1)}
	m.mu.kept, m.mu.told = config.Kept, config.Kept
	m.active.Raise(config.Kept.Active)
	gauge := func(name, help string, level func() release.Level) {
		m.metrics = append(m.metrics, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidemark_" + name, Help: help},
			func() float64 { return float64(level()) }))
	}
	gauge("server_level_active", "The level up to which this server uses formats and messages.",
		m.active.Level)
	gauge("server_level_noted", "The highest level that this server has noted on its disk.",
		func() release.Level { return m.Levels().Noted })
	gauge("server_level_supported", "The highest level that this server's program supports.",
		func() release.Level { return config.Supported.Max })
	if config.Registerer == nil {
		return m, nil
	}
	for i, c := range m.metrics {
		if err := config.Registerer.Register(c); err != nil {
			m.metrics = m.metrics[:i]
			m.Close()
			return nil, fmt.Errorf("register the metrics of the level: %w", err)
		}
	}
	return m, nil
}

// Close unregisters the metrics.
func (m *Mark) Close() {
	if m.config.Registerer != nil {
		for _, c := range m.metrics {
			m.config.Registerer.Unregister(c)
		}
	}
}

// Active returns the active level, which the parts of the server share.
func (m *Mark) Active() *release.Active { return &m.active }

// Levels returns the levels on disk.
func (m *Mark) Levels() Levels {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.kept
}

// Report returns the server's report to the core.
func (m *Mark) Report() *clusterpb.Levels {
	kept := m.Levels()
	return &clusterpb.Levels{Min: uint32(m.config.Supported.Min), Max: uint32(m.config.Supported.Max),
		Noted: uint32(kept.Noted), Active: uint32(kept.Active)}
}

// Learn processes a report of the core. It does not block. Levels that are not higher than the
// known ones change nothing. nil, the answer of a version from before there were levels, changes
// nothing either. A level that the program does not support is ignored: the core refuses the
// server.
func (m *Mark) Learn(l *clusterpb.ClusterLevel) {
	active := release.Level(l.GetActive())
	noted := max(release.Level(l.GetComing()), active)
	if noted > m.config.Supported.Max {
		return
	}
	m.mu.Lock()
	m.mu.told.Noted = max(m.mu.told.Noted, noted)
	m.mu.told.Active = max(m.mu.told.Active, active)
	due := m.mu.told != m.mu.kept // a write that has failed is retried
	m.mu.Unlock()
	if due {
		select {
		case m.news <- struct{}{}:
		default:
		}
	}
}

// Run records the learned levels on disk, until ctx ends.
func (m *Mark) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.news:
			m.settle()
		}
	}
}

// settle records the levels that the core has reported, and then makes them effective.
func (m *Mark) settle() {
	m.mu.Lock()
	kept, told := m.mu.kept, m.mu.told
	m.mu.Unlock()
	if kept == told {
		return
	}
	if err := m.config.Save(told); err != nil {
		m.config.Logger.Error("the level of the cluster could not be written down; this server goes on "+
			"with the formats that it has used", "error", err)
		return
	}
	m.mu.Lock()
	m.mu.kept = told
	m.mu.Unlock()
	raised := m.active.Raise(told.Active)
	switch {
	case raised && kept.Noted == 0 && kept.Active == 0:
		// The server has joined a cluster that is at this level, or a new cluster.
	case raised:
		m.config.Logger.Info("the formats and messages of a new level are used from now on",
			"level", told.Active)
	default:
		m.config.Logger.Info("a level is coming: this server can no longer go back to a program that "+
			"does not support it", "level", told.Noted)
	}
	if m.config.Changed != nil {
		m.config.Changed()
	}
}

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

// Levels is what a server has on its disk.
type Levels struct {
	// Noted is the highest level that was active or coming, and Active the active one.
	Noted, Active release.Level
}

// Config is what a Mark is made of. Save and Logger must be set.
type Config struct {
	// Supported is what the server's program supports.
	Supported release.Range
	// Kept is what the server has on disk, and Save writes other levels there, durably, before it
	// returns. One goroutine calls Save.
	Kept Levels
	Save func(Levels) error
	// Changed, if not nil, is called by that goroutine after the server has noted a level, or has
	// made one active.
	Changed func()
	Logger  *slog.Logger
	// Registerer takes the metrics, until Close. nil: none does.
	Registerer prometheus.Registerer
}

// Mark is the cluster's level as a server knows it. Safe for concurrent use.
type Mark struct {
	config  Config
	active  release.Active
	metrics []prometheus.Collector
	// news wakes Run. Capacity 1.
	news chan struct{}
	mu   struct {
		sync.Mutex
		// kept is on disk, and told is what the core has said last.
		kept, told Levels
	}
}

// Check says why a server that has noted levels cannot start with a program that supports others;
// nil: it can. A server that belongs to no cluster yet can start with every program.
func Check(supported release.Range, kept Levels, joined bool) error {
	if !joined {
		return nil
	}
	// Between the noted and the active level, either of the two may be what the server is sent.
	for _, l := range []release.Level{max(kept.Noted, kept.Active), kept.Active} {
		if why := supported.Refusal(l); why != "" {
			return errors.New(why)
		}
	}
	return nil
}

// New makes a Mark. It learns while Run runs.
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

// Close takes back the metrics.
func (m *Mark) Close() {
	if m.config.Registerer != nil {
		for _, c := range m.metrics {
			m.config.Registerer.Unregister(c)
		}
	}
}

// Active is the active level, which the parts of the server share.
func (m *Mark) Active() *release.Active { return &m.active }

// Levels is what is on disk.
func (m *Mark) Levels() Levels {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.kept
}

// Report is what the server says of itself to the core.
func (m *Mark) Report() *clusterpb.Levels {
	kept := m.Levels()
	return &clusterpb.Levels{Min: uint32(m.config.Supported.Min), Max: uint32(m.config.Supported.Max),
		Noted: uint32(kept.Noted), Active: uint32(kept.Active)}
}

// Learn takes note of what the core says. It does not block. What is not higher than what is known
// changes nothing, and neither does nil, the answer of a version from before there were levels. A
// level that the program does not support is not learned: the core refuses the server.
func (m *Mark) Learn(l *clusterpb.ClusterLevel) {
	active := release.Level(l.GetActive())
	noted := max(release.Level(l.GetComing()), active)
	if noted > m.config.Supported.Max {
		return
	}
	m.mu.Lock()
	m.mu.told.Noted = max(m.mu.told.Noted, noted)
	m.mu.told.Active = max(m.mu.told.Active, active)
	due := m.mu.told != m.mu.kept // a write that has failed is tried again
	m.mu.Unlock()
	if due {
		select {
		case m.news <- struct{}{}:
		default:
		}
	}
}

// Run writes down what is learned, until ctx ends.
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

// settle writes down what the core has said, and then goes by it.
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
		// It has joined a cluster that is at this level, or a new one.
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

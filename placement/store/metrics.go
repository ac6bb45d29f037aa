package store

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// metrics are the metrics of one store.
type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector
	commands   *prometheus.CounterVec
	latency    prometheus.Histogram
	expired    prometheus.Counter
}

func newMetrics(s *Store) *metrics {
	m := &metrics{
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_placement_store_commands_total",
			Help: "Commands applied to a store of the core, by kind and outcome.",
		}, []string{"kind", "outcome"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "tidemark_placement_store_command_seconds",
			Help:    "Time from proposing a command to its being applied, on the leader.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_placement_store_leases_expired_total",
			Help: "Leases that ran out on this member while it led.",
		}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "tidemark_placement_store_" + name, Help: help}, value)
	}
	m.collectors = []prometheus.Collector{
		m.commands, m.latency, m.expired,
		gauge("revision", "Newest revision that this member has applied.", func() float64 {
			return float64(s.Revision())
		}),
		gauge("compacted_revision", "Lowest revision that can be read.", func() float64 {
			return float64(s.Compacted())
		}),
		gauge("bytes", "Size of the store as its quota counts it: keys and values of the whole history, "+
			"and leases.", func() float64 { return float64(s.Bytes()) }),
		gauge("quota_bytes", "Size above which this member lets nothing be put while it leads; 0: no "+
			"quota.", func() float64 { return float64(s.QuotaBytes()) }),
		gauge("leases", "Leases that exist.", func() float64 { return float64(s.lessor.Count()) }),
		gauge("pending_commands", "Commands that were proposed and whose outcome is open.",
			func() float64 {
				commands, _ := s.Pending()
				return float64(commands)
			}),
		gauge("pending_bytes", "Size of the commands whose outcome is open.", func() float64 {
			_, bytes := s.Pending()
			return float64(bytes)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tidemark_placement_store_overloaded_total",
			Help: "Commands that were refused because too much waited already.",
		}, func() float64 { return float64(s.Refused()) }),
		newestReads(s, "memory", func(c newest.Counts) uint64 { return c.Versions }),
		newestReads(s, "filter", func(c newest.Counts) uint64 { return c.Filter }),
		newestReads(s, "database", func(c newest.Counts) uint64 { return c.Unknown }),
		gauge("watchers", "Watchers on this member.", func() float64 {
			return float64(s.hub.Counts().Watches)
		}),
		gauge("watchers_lagging", "Watchers on this member that get events from the history, because "+
			"they began in the past, or did not keep up.", func() float64 {
			return float64(s.hub.Counts().Lagging)
		}),
		gauge("watch_streams", "Streams of watchers on this member.", func() float64 {
			return float64(s.hub.Counts().Streams)
		}),
		gauge("leader", "1 if this member leads the store's group and serves.", func() float64 {
			if l, _ := s.Leadership(); l.Serving {
				return 1
			}
			return 0
		}),
	}
	return m
}

// register registers the metrics; with a nil registerer they are not exported.
func (m *metrics) register(registerer prometheus.Registerer) error {
	if registerer == nil {
		return nil
	}
	m.registerer = registerer
	for i, c := range m.collectors {
		if err := registerer.Register(c); err != nil {
			m.collectors = m.collectors[:i]
			m.close()
			return errors.Join(errors.New("register metrics"), err)
		}
	}
	return nil
}

// newestReads counts the lookups of Apply that the cache of newest versions answered in the given
// way.
func newestReads(s *Store, from string, count func(newest.Counts) uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "tidemark_placement_store_latest_version_reads_total",
		Help: "Newest versions that commands needed when they were applied, by where they came from: " +
			"memory, the filter of keys that exist (which says that there is none), or the database.",
		ConstLabels: prometheus.Labels{"from": from},
	}, func() float64 { return float64(count(s.newest.Counts())) })
}

func (m *metrics) close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) applied(c *storepb.Command, r *storepb.Result) {
	kind := "other"
	switch c.Op.(type) {
	case *storepb.Command_Txn:
		kind = "txn"
	case *storepb.Command_Compact:
		kind = "compact"
	case *storepb.Command_LeaseGrant:
		kind = "lease_grant"
	case *storepb.Command_LeaseRevoke:
		kind = "lease_revoke"
	case *storepb.Command_LeaseCheckpoint:
		kind = "lease_checkpoint"
	case *storepb.Command_SessionOpen, *storepb.Command_SessionClose:
		kind = "session"
	case *storepb.Command_ChangeMembers:
		kind = "members"
	case *storepb.Command_AuthChange:
		kind = "auth"
	case *storepb.Command_Import:
		kind = "import"
	}
	outcome := "ok"
	switch {
	case r.Repeated:
		outcome = "repeated"
	case r.Code != storepb.Code_OK:
		outcome = "refused"
	}
	m.commands.WithLabelValues(kind, outcome).Inc()
}

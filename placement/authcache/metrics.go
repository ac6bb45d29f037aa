package authcache

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/access"
)

// metrics count refusals, and show how current the tables are.
type metrics struct {
	registerer prometheus.Registerer
	refusals   *prometheus.CounterVec
	by         map[access.Reason]prometheus.Counter
	all        []prometheus.Collector
}

func newMetrics(g *Cache, registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{by: map[access.Reason]prometheus.Counter{}}
	m.refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_auth_data_refusals_total",
		Help: "Requests for data of keyspaces that were refused because the client has no valid " +
			"token or certificate (unauthenticated), may not do it (denied), or this server has not " +
			"heard from the core for too long (unknown).",
	}, []string{"reason"})
	for reason, name := range map[access.Reason]string{access.Unauthenticated: "unauthenticated",
		access.Denied: "denied", access.Unknown: "unknown"} {
		m.by[reason] = m.refusals.WithLabelValues(name)
	}
	m.all = []prometheus.Collector{m.refusals,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidemark_auth_cache_enabled",
			Help: "1 if this server needs its copy of users and roles to answer clients, else 0.",
		}, func() float64 {
			if g.Flag().On {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidemark_auth_cache_valid_seconds",
			Help: "For how long this server's copy of users and roles stays valid; at 0 it refuses " +
				"clients, if it keeps a copy.",
		}, func() float64 {
			if left := time.Duration(g.until.Load() - g.config.Monotonic()); left > 0 &&
				left <= g.config.Grace {
				return left.Seconds()
			}
			return 0
		})}
	if registerer == nil {
		return m, nil
	}
	for i, c := range m.all {
		err := registerer.Register(c)
		// A server that ended without Close, and starts again in this process, is replaced.
		var there prometheus.AlreadyRegisteredError
		if errors.As(err, &there) && registerer.Unregister(there.ExistingCollector) {
			err = registerer.Register(c)
		}
		if err != nil {
			for _, c := range m.all[:i] {
				registerer.Unregister(c)
			}
			return nil, fmt.Errorf("register metrics of users and roles: %w", err)
		}
	}
	m.registerer = registerer
	return m, nil
}

func (m *metrics) refused(reason access.Reason) { m.by[reason].Inc() }

func (m *metrics) close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all {
		m.registerer.Unregister(c)
	}
}

package authorize

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count refusals and administration.
type metrics struct {
	registerer                prometheus.Registerer
	refusals, logins, changes *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "tidemark_auth_" + name + "_total", Help: help}, []string{label})
	}
	m := &metrics{registerer: registerer,
		refusals: counter("refusals", "Calls of the etcd API that were refused because the client may "+
			"not do it, has a token that is not valid, a wrong password, or does not say who it is.",
			"reason"),
		logins: counter("logins", "Passwords that came with the etcd API and were checked.", "outcome"),
		changes: counter("changes", "Calls of the etcd API that administer users, roles or members.",
			"outcome"),
	}
	for _, reason := range []string{"permission", "token", "unidentified", "password"} {
		m.refusals.WithLabelValues(reason)
	}
	for outcome, of := range map[string]*prometheus.CounterVec{"right": m.logins, "wrong": m.logins,
		"done": m.changes, "refused": m.changes} {
		of.WithLabelValues(outcome)
	}
	if registerer == nil {
		return m, nil
	}
	for i, c := range m.collectors() {
		if err := registerer.Register(c); err != nil {
			for _, c := range m.collectors()[:i] {
				registerer.Unregister(c)
			}
			return nil, fmt.Errorf("register metrics of the etcd API: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.refusals, m.logins, m.changes}
}

func (m *metrics) close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors() {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) login(right bool) {
	outcome := "wrong"
	if right {
		outcome = "right"
	}
	m.logins.WithLabelValues(outcome).Inc()
}

func (m *metrics) administered(err error) {
	outcome := "done"
	if err != nil {
		outcome = "refused"
	}
	m.changes.WithLabelValues(outcome).Inc()
}

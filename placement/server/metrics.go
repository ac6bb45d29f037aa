package server

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
)

type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector

	changes prometheus.Counter
}

func newMetrics(s *Server, registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{registerer: registerer}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_placement_" + name, Help: help})
		m.collectors = append(m.collectors, c)
		return c
	}
	m.changes = counter("replica_changes_total",
		"Changes of partitions' replicas that this member has put into the table.")
	m.collectors = append(m.collectors, s.keyspaces.Collectors()...)
	m.collectors = append(m.collectors, s.table.Collectors()...)
	m.collectors = append(m.collectors, s.backups.Collectors()...)
	counted := func(name, help, prefix string) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "tidemark_placement_" + name, Help: help}, func() float64 {
				n, err := meta.Count(s.config.Store.Stale(), prefix)
				if errors.Is(err, store.ErrClosed) || err != nil {
					return 0
				}
				return float64(n)
			}))
	}
	m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_placement_nodes",
		Help: "Nodes that are registered, and were not decommissioned.",
	}, func() float64 {
		n, err := meta.CountNodes(s.config.Store.Stale())
		if err != nil {
			return 0
		}
		return float64(n)
	}))
	counted("nodes_alive", "Nodes whose lease is alive.", meta.AlivePrefix)
	counted("keyspaces", "Keyspaces, whatever their state.", meta.KeyspacePrefix)
	counted("operators", "Changes of partitions' replicas that are under way.", meta.OperatorPrefix)
	counted("partitions", "Partitions in the table.", meta.PartitionPrefix)
	m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_placement_partitions_led",
		Help: "Partitions whose leader is known to this member from heartbeats; " +
			"0 unless it leads the core.",
	}, func() float64 {
		_, led, _ := s.reports.Kept()
		return float64(led)
	}))
	m.measureHealth(s)
	m.measureScheduler(s)
	m.collectors = append(m.collectors, s.operators.Collectors()...)
	m.collectors = append(m.collectors, s.nodes.Collectors()...)
	m.collectors = append(m.collectors, s.membership.Collectors()...)
	m.collectors = append(m.collectors, s.consumers.Collectors()...)
	m.collectors = append(m.collectors, s.upgrade.Collectors()...)
	m.collectors = append(m.collectors, s.quotas)
	if registerer == nil {
		return m, nil
	}
	for i, c := range m.collectors {
		if err := registerer.Register(c); err != nil {
			m.collectors = m.collectors[:i]
			m.close()
			return nil, errors.Join(errors.New("placement server: register metrics"), err)
		}
	}
	return m, nil
}

func (m *metrics) close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}

// measureHealth adds the gauges of what nodes report about each other. They are 0 on a member that
// does not lead the core, because its reports may be old.
func (m *metrics) measureHealth(s *Server) {
	gauge := func(name, help string, value func(silent, behind int) int) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidemark_placement_" + name, Help: help}, func() float64 {
			if l, _ := s.config.Store.Leadership(); !l.Serving {
				return 0
			}
			alive, err := meta.LoadAlive(s.config.Store.Stale())
			if err != nil {
				return 0
			}
			return float64(value(s.reports.Totals(alive)))
		}))
	}
	gauge("links_silent", "How often a node that is alive hears nothing of another one that is alive "+
		"and shares partitions with it: two if neither of two nodes hears the other.",
		func(silent, _ int) int { return silent })
	gauge("replicas_behind", "Replicas that have not caught up with the leaders of their partitions, "+
		"those on nodes that are down included.", func(_, behind int) int { return behind })
}

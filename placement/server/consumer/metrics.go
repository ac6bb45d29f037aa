package consumer

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxLagging limits the keyspaces whose lag is shown: those in which a consumer has used the
// largest part of its keep.
const maxLagging = 100

// Lag describes the consumers of a keyspace.
type Lag struct {
	keyspace       string
	consumers, old int
	// lag is the lag of the consumer that is furthest behind. used is the largest used part of a keep.
	lag  time.Duration
	used float64
}

// kept returns the number of consumers for which history is kept.
func (l Lag) kept() int { return l.consumers - l.old }

// LagOf measures the consumers of a keyspace.
func LagOf(keyspace string, all []Record, now time.Time) Lag {
	l := Lag{keyspace: keyspace, consumers: len(all)}
	for _, c := range all {
		if c.TooOld {
			l.old++
			continue
		}
		behind := c.Behind(now)
		l.lag = max(l.lag, behind)
		l.used = max(l.used, behind.Seconds()/c.Keep().Seconds())
	}
	return l
}

// Metrics are the metrics of consumers of changes. A member that does not lead the core shows none.
type Metrics struct {
	consumers *prometheus.GaugeVec
	lag, used *prometheus.GaugeVec
	// Dropped counts the consumers for which history is no longer kept.
	Dropped prometheus.Counter
}

// NewMetrics makes the metrics, with no consumer.
func NewMetrics() *Metrics {
	m := &Metrics{}
	m.consumers = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidemark_core_consumers",
		Help: "Consumers of changes, by whether history is kept for them or they are too old for " +
			"that; 0 unless this member leads the core."}, []string{"state"})
	m.lag = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tidemark_core_consumer_lag_seconds",
		Help: "How far the consumer of changes is behind that is so the farthest, for the hundred " +
			"keyspaces of which one has used most of its keep."}, []string{"keyspace"})
	m.used = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tidemark_core_consumer_retention_used_ratio",
		Help: "Which part of the time for which history is kept for it a consumer of changes is " +
			"behind, at most; for the same keyspaces."}, []string{"keyspace"})
	m.Dropped = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidemark_core_consumers_dropped_total",
		Help: "Consumers of changes that fell behind by more than their keep: history is not kept " +
			"for them any more."})
	m.Show(nil)
	return m
}

// Collectors returns the collectors to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.consumers, m.lag, m.used, m.Dropped}
}

// Show sets the metrics to what the leader has seen. nil means that this member does not lead.
func (m *Metrics) Show(lags []Lag) {
	kept, old := 0, 0
	for _, l := range lags {
		kept, old = kept+l.kept(), old+l.old
	}
	m.consumers.WithLabelValues("kept").Set(float64(kept))
	m.consumers.WithLabelValues("too_old").Set(float64(old))
	lags = slices.DeleteFunc(lags, func(l Lag) bool { return l.kept() == 0 })
	slices.SortFunc(lags, func(a, b Lag) int {
		return cmp.Or(cmp.Compare(b.used, a.used), cmp.Compare(a.keyspace, b.keyspace))
	})
	m.lag.Reset()
	m.used.Reset()
	for _, l := range lags[:min(len(lags), maxLagging)] {
		m.lag.WithLabelValues(l.keyspace).Set(l.lag.Seconds())
		m.used.WithLabelValues(l.keyspace).Set(l.used)
	}
}

package route

import (
	"errors"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// metrics of one Sender. Without a registry only what is off the straight path is counted.
type metrics struct {
	retries   map[string]*metric.Counter // by Backoff.Name
	suspected *metric.Gauge
	held      *metric.Counter
	tables    *metric.Counter
	waits     *metric.Counter
	near      *nearMetrics
	// kinds count calls by the name of their command; nil without a registry.
	kinds map[string]*kindMetrics

	registry   metric.Registry
	collectors []metric.Collector
}

func newMetrics(r metric.Registry) (*metrics, error) {
	retries := metric.NewVec("tidemark_client_retries_total",
		"Attempts of requests that were followed by another one, by class of failure.", "class")
	m := &metrics{
		retries: make(map[string]*metric.Counter),
		suspected: metric.NewGauge("tidemark_client_suspected_nodes",
			"Nodes that get pings instead of requests, because their connection broke or they "+
				"are silent.", nil),
		held: metric.NewCounter("tidemark_client_held_seconds_total",
			"Time for which requests were held back before they were sent, because the node refuses "+
				"some: it is asked for more than it can do.", nil),
		tables: metric.NewCounter("tidemark_client_table_streams_total",
			"Streams of the partition table that were opened.", nil),
		waits: metric.NewCounter("tidemark_client_clock_waits_total",
			"Reads that waited until the clocks had passed their moment: scans and counts over "+
				"partitions without a leader or over very many, and Views whose "+
				"first attempts were in vain.", nil),
	}
	m.near = newNearMetrics()
	for _, b := range []backoff.Backoff{routingBackoff, leaderlessBackoff, connectionBackoff,
		overloadedBackoff, waitedBackoff, quorumBackoff, unhealthyBackoff,
		unknownBackoff, identityBackoff} {
		m.retries[b.Name] = retries.With(b.Name)
	}
	if r == nil {
		return m, nil
	}
	m.registry = r
	kinds, collectors := newKindMetrics()
	m.kinds = kinds
	for _, c := range append(collectors, retries, m.suspected, m.held, m.tables, m.waits, m.near.reads,
		m.near.outcomes, m.near.redirects) {
		if err := r.Register(c); err != nil {
			m.unregister()
			var twice *metric.RegisteredError
			if errors.As(err, &twice) {
				return nil, errors.New(
					"another client already uses this metrics registry: give each its own, " +
						"such as one from prometheus.WrapRegistererWith")
			}
			return nil, err
		}
		m.collectors = append(m.collectors, c)
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.collectors {
		m.registry.Unregister(c)
	}
	m.collectors = nil
}

// nearOutcome is how a read ended that any replica may answer.
type nearOutcome uint8

const (
	// nearFirst: the replica that was asked first answered; nearOther: another one.
	nearFirst nearOutcome = iota
	nearOther
	// nearLeader: the leader answered, as it answers any read.
	nearLeader
	nearFailed
	nearOutcomes
)

func (o nearOutcome) String() string {
	return [...]string{"nearest", "other", "leader", "failed"}[o]
}

// redirect is why such a read went on to another replica.
type redirect uint8

const (
	redirectNotClosed redirect = iota
	redirectLocked
	redirectUncertain
	redirectEpoch
	redirectOverloaded
	redirectUnhealthy
	redirectBroken
	// redirectLeftAlone: all replicas were left alone, because of what is known of them.
	redirectLeftAlone
	redirects
)

func (r redirect) String() string {
	return [...]string{"not-closed", "locked", "uncertain", "stale-epoch", "overloaded", "unhealthy",
		"connection", "left-alone"}[r]
}

// nearMetrics count the reads that any replica may answer.
type nearMetrics struct {
	reads, outcomes, redirects *metric.Vec

	byKind    [freshnesses]*metric.Counter
	byOutcome [nearOutcomes]*metric.Counter
	byReason  [redirects]*metric.Counter
}

func newNearMetrics() *nearMetrics {
	m := &nearMetrics{
		reads: metric.NewVec("tidemark_client_follower_reads_total",
			"Requests that any replica may answer, by what they want.", "kind"),
		outcomes: metric.NewVec("tidemark_client_follower_read_outcomes_total",
			"Requests that any replica may answer, by what answered: the replica that was asked first, "+
				"another one, the leader as a leader, or none.", "outcome"),
		redirects: metric.NewVec("tidemark_client_follower_read_redirects_total",
			"Attempts of such requests that were followed by one at another replica, or at the leader, "+
				"by reason.", "reason"),
	}
	for f := range freshnesses {
		m.byKind[f] = m.reads.With(f.String())
	}
	for o := range nearOutcomes {
		m.byOutcome[o] = m.outcomes.With(o.String())
	}
	for r := range redirects {
		m.byReason[r] = m.redirects.With(r.String())
	}
	return m
}

func (m *nearMetrics) count(f Freshness, o nearOutcome) {
	m.byKind[f].Inc()
	m.byOutcome[o].Inc()
}

func (m *nearMetrics) redirected(r redirect) { m.byReason[r].Inc() }

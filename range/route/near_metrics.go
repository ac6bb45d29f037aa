package route

import "github.com/tidemarkdb/tidemark/rpc/metric"

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

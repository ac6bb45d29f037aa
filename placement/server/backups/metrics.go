package backups

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// metrics are those of the backups, on the member that leads.
type metrics struct {
	total *prometheus.CounterVec
	open  prometheus.Gauge
	last  prometheus.Gauge
	moved prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_backup_ended_total",
			Help: "Backups that this member has seen end, by outcome."}, []string{"outcome"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_backup_unfinished",
			Help: "Backups that are being made or wait, on the core's leader."}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidemark_backup_last_complete_timestamp_seconds",
			Help: "The moment that the newest complete backup restores, in seconds since 1970, on " +
				"the core's leader; 0: it knows none."}),
		moved: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidemark_backup_progress_timestamp_seconds",
			Help: "When the backup or restore under way made progress last, in seconds since 1970, on " +
				"the core's leader; 0: none is under way."}),
	}
	// A counter that begins at 1 would hide its first increase.
	for _, outcome := range []string{complete, failed, cancelled} {
		m.total.WithLabelValues(outcome)
	}
	return m
}

// Outcomes of backups.
const complete, failed, cancelled = "complete", "failed", "cancelled"

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.open, m.last, m.moved}
}

// show shows what the records say.
func (m *metrics) show(all []record) {
	open, last := 0, int64(0)
	for _, r := range all {
		if !r.ended() {
			open++
		}
		if r.State == clusterpb.BackupState_BACKUP_COMPLETE {
			last = max(last, int64(r.At.GetWall()))
		}
	}
	m.open.Set(float64(open))
	m.last.Set(float64(last) / 1e9)
	if open == 0 {
		m.moved.Set(0)
	}
}

// progress shows that the backup under way has made progress.
func (m *metrics) progress(at time.Time) { m.moved.Set(float64(at.UnixMilli()) / 1e3) }

// ended counts a backup.
func (m *metrics) ended(r record) {
	outcome := complete
	switch r.State {
	case clusterpb.BackupState_BACKUP_FAILED:
		outcome = failed
	case clusterpb.BackupState_BACKUP_CANCELLED:
		outcome = cancelled
	}
	m.moved.Set(0)
	m.total.WithLabelValues(outcome).Inc()
}

package backups

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// metrics are the metrics of backups. Only the leader sets them.
type metrics struct {
	total *prometheus.CounterVec
	open  prometheus.Gauge
	last  prometheus.Gauge
	moved prometheus.Gauge
	// The gauges below have a label with the name of the schedule.
	backup, full, log, interval, broken *prometheus.GaugeVec
	logFailures, gaps                   *prometheus.CounterVec
}

func newMetrics() *metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidemark_backup_schedule_" + name,
			Help: help + " On the core's leader."}, []string{"schedule"})
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tidemark_backup_log_" + name,
			Help: help}, []string{"schedule"})
	}
	m := &metrics{
		backup: gauge("last_backup_timestamp_seconds", "The moment that the newest complete backup of "+
			"a schedule restores, in seconds since 1970; before the first one, when the schedule was "+
			"created."),
		full: gauge("last_full_timestamp_seconds", "The same of the newest full backup."),
		log: gauge("log_timestamp_seconds", "The moment up to which the log of a schedule has all "+
			"changes, in seconds since 1970; of a schedule without a log there is none."),
		interval: gauge("interval_seconds", "How often a backup is to be made by a schedule; 0: the "+
			"schedule is paused."),
		broken: gauge("broken", "1 if the chain of a schedule cannot be continued, so that the next "+
			"backup has to be a full one."),
		logFailures: counter("failures_total", "Attempts to write a round of the log of a schedule "+
			"that failed, on this member."),
		gaps: counter("gaps_total", "How often this member had to begin another log, because history "+
			"was collected before it was written: moments in between cannot be restored."),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_backup_ended_total",
			Help: "Backups and restores that this member has seen end, by outcome."}, []string{"outcome"}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_backup_unfinished",
			Help: "Backups and restores that are under way or wait, on the core's leader."}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidemark_backup_last_complete_timestamp_seconds",
			Help: "The moment that the newest complete backup restores, in seconds since 1970, on " +
				"the core's leader; 0: it knows none."}),
		moved: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidemark_backup_progress_timestamp_seconds",
			Help: "When the backup or restore under way made progress last, in seconds since 1970, on " +
				"the core's leader; 0: none is under way."}),
	}
	// The counters are created at 0, because the first increase of a counter that begins at 1 is not
	// visible.
	for _, outcome := range []string{complete, failed, cancelled} {
		m.total.WithLabelValues(outcome)
	}
	return m
}

// Outcomes of backups.
const complete, failed, cancelled = "complete", "failed", "cancelled"

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.open, m.last, m.moved, m.backup, m.full, m.log,
		m.interval, m.broken, m.logFailures, m.gaps}
}

// show sets the metrics from the records of backups.
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

// progress records the time of progress of the running backup.
func (m *metrics) progress(at time.Time) { m.moved.Set(float64(at.UnixMilli()) / 1e3) }

// schedules sets the metrics from the records of schedules.
func (m *metrics) schedules(all []schedule) {
	for _, v := range []*prometheus.GaugeVec{m.backup, m.full, m.log, m.interval, m.broken} {
		v.Reset()
	}
	seconds := func(s schedule, at *clusterpb.Timestamp) float64 {
		if at == nil {
			return float64(s.CreatedUnixMs) / 1e3
		}
		return float64(at.GetWall()) / 1e9
	}
	for _, s := range all {
		// The counter is created at 0, because the first increase of a counter that begins at 1 is not
		// visible.
		m.gaps.WithLabelValues(s.Name)
		m.logFailures.WithLabelValues(s.Name)
		m.backup.WithLabelValues(s.Name).Set(seconds(s, s.LastAt))
		m.full.WithLabelValues(s.Name).Set(seconds(s, s.FullAt))
		if s.LogMillis != 0 {
			m.log.WithLabelValues(s.Name).Set(seconds(s, s.LogAt))
		}
		interval, broken := s.full(), 0.0
		if s.IncrementalMillis != 0 {
			interval = s.incremental()
		}
		if s.Paused {
			interval = 0
		}
		if s.Broken {
			broken = 1
		}
		m.interval.WithLabelValues(s.Name).Set(interval.Seconds())
		m.broken.WithLabelValues(s.Name).Set(broken)
	}
}

// logWritten sets how far a log has come.
func (m *metrics) logWritten(name string, at *clusterpb.Timestamp) {
	m.log.WithLabelValues(name).Set(float64(at.GetWall()) / 1e9)
}

// logFailed counts a failed round. logGap counts a log that could not be continued.
func (m *metrics) logFailed(name string) { m.logFailures.WithLabelValues(name).Inc() }
func (m *metrics) logGap(name string)    { m.gaps.WithLabelValues(name).Inc() }

// ended counts a backup that has ended. A backup that is undone after a failure was counted before.
func (m *metrics) ended(r record, failing bool) {
	m.moved.Set(0)
	if r.State == clusterpb.BackupState_BACKUP_CANCELLED && r.Schedule != "" && r.Error != "" {
		return
	}
	if failing {
		m.total.WithLabelValues(failed).Inc()
		return
	}
	outcome := complete
	switch r.State {
	case clusterpb.BackupState_BACKUP_FAILED:
		outcome = failed
	case clusterpb.BackupState_BACKUP_CANCELLED:
		outcome = cancelled
	}
	m.total.WithLabelValues(outcome).Inc()
}

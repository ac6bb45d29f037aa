package feed

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// Metrics are the metrics of a client's change feeds.
type Metrics struct {
	running           *metric.Gauge
	changes, failures *metric.Counter
	logger            *slog.Logger
	registry          metric.Registry
	registered        []metric.Collector

	mu struct {
		sync.Mutex
		// feeds are the running feeds.
		feeds map[*Feed]struct{}
	}
}

// failureLog is the least time between two log messages about the errors of one feed.
const failureLog = 10 * time.Second

// NewMetrics makes the metrics and registers them, if r is not nil.
func NewMetrics(r metric.Registry, logger *slog.Logger) (*Metrics, error) {
	m := &Metrics{
		running: metric.NewGauge("tidemark_client_feeds", "Change feeds that run.", nil),
		changes: metric.NewCounter("tidemark_client_feed_changes_total",
			"Changes that change feeds have handed on.", nil),
		failures: metric.NewCounter("tidemark_client_feed_failures_total",
			"Questions of change feeds that failed and were asked again.", nil),
		logger: logger, registry: r,
	}
	m.mu.feeds = make(map[*Feed]struct{})
	if r == nil {
		return m, nil
	}
	for _, c := range []metric.Collector{m.running, m.changes, m.failures, (*lag)(m)} {
		if err := r.Register(c); err != nil {
			m.Unregister()
			return nil, err
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// Unregister removes the metrics from the registry.
func (m *Metrics) Unregister() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
	m.registered = nil
}

// Feed is one running feed. Its methods are called by the goroutine of its loop, and NotRecorded by
// the goroutine that records its positions.
type Feed struct {
	of       *Metrics
	keyspace string
	// logged is when an error was last logged; at is the timestamp of the last progress. Metrics.mu
	// guards both.
	logged time.Time
	at     hlc.Timestamp
}

// Begin counts a running feed, until End.
func (m *Metrics) Begin(keyspace string, since hlc.Timestamp) *Feed {
	f := &Feed{of: m, keyspace: keyspace, at: since}
	m.running.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.feeds[f] = struct{}{}
	return f
}

// End removes the feed from the count.
func (f *Feed) End() {
	f.of.running.Dec()
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	delete(f.of.mu.feeds, f)
}

// Progress records that all changes at or below a timestamp have come.
func (f *Feed) Progress(at hlc.Timestamp) {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.at = at
}

// Changed counts a change that was passed on.
func (f *Feed) Changed() { f.of.changes.Inc() }

// Failed counts an error after which the feed continues, and logs it at most every failureLog.
func (f *Feed) Failed(err error) {
	f.of.failures.Inc()
	f.warn("a change feed waits for a partition that could not be read", err)
}

// NotRecorded logs that the position of the feed's consumer could not be recorded.
func (f *Feed) NotRecorded(err error) {
	f.warn("the position of a change feed's consumer could not be recorded", err)
}

// warn logs an error at most every failureLog.
func (f *Feed) warn(message string, err error) {
	f.of.mu.Lock()
	now := time.Now()
	says := now.Sub(f.logged) >= failureLog
	if says {
		f.logged = now
	}
	f.of.mu.Unlock()
	if says {
		f.of.logger.Warn(message, "keyspace", f.keyspace, "error", err)
	}
}

// lag is the distance of the slowest feed's last progress from the client's clock.
type lag Metrics

// Describe implements metric.Collector.
func (*lag) Describe() metric.Desc {
	return metric.Desc{Name: "tidemark_client_feed_lag_seconds", Gauge: true,
		Help: "How far behind this machine's clock the last progress of a change feed is, at most; 0 " +
			"if none runs."}
}

// Collect implements metric.Collector.
func (l *lag) Collect(yield func(label string, value float64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	most, now := time.Duration(0), time.Now().UnixNano()
	for f := range l.mu.feeds {
		most = max(most, time.Duration(now-f.at.Wall))
	}
	yield("", most.Seconds())
}

package driver

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Retries counts the attempts of a client's requests that were followed by another one. It is what
// the client is given as its metrics (kv.Metrics), of which it keeps those that count attempts.
// A nil Retries counts nothing.
type Retries struct {
	mu         sync.Mutex
	collectors []prometheus.Collector
}

// NewRetries is for one client.
func NewRetries() *Retries { return new(Retries) }

// retryMetrics are the counters of attempts.
var retryMetrics = []string{`"tidemark_client_retries_total"`, `"tidemark_client_read_restarts_total"`}

// Register implements prometheus.Registerer.
func (r *Retries) Register(c prometheus.Collector) error {
	described := make(chan *prometheus.Desc, 16)
	c.Describe(described)
	close(described)
	for d := range described {
		if slices.ContainsFunc(retryMetrics, func(name string) bool { return strings.Contains(d.String(), name) }) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.collectors = append(r.collectors, c)
			return nil
		}
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *Retries) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = r.Register(c) // it never fails
	}
}

// Unregister implements prometheus.Registerer.
func (r *Retries) Unregister(c prometheus.Collector) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.collectors, c)
	if i >= 0 {
		r.collectors = slices.Delete(r.collectors, i, i+1)
	}
	return i >= 0
}

// Sum is how many attempts there were so far.
func (r *Retries) Sum() (sum int) {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.collectors {
		metrics := make(chan prometheus.Metric, 64) // of classes there are a dozen
		c.Collect(metrics)
		close(metrics)
		for m := range metrics {
			var value dto.Metric
			if m.Write(&value) == nil {
				sum += int(value.GetCounter().GetValue())
			}
		}
	}
	return sum
}

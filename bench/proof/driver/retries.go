package driver

import (
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// Retries counts the attempts of a client's requests that were followed by another attempt. The
// client gets it as its metrics (kv.Metrics). Retries keeps only the metrics that count attempts. A
// nil Retries counts nothing.
type Retries struct {
	mu         sync.Mutex
	collectors []metric.Collector
}

// NewRetries returns Retries for one client.
func NewRetries() *Retries { return new(Retries) }

// retryMetrics has the names of the counters of attempts.
var retryMetrics = []string{"tidemark_client_retries_total", "tidemark_client_read_restarts_total"}

// Register implements metric.Registry.
func (r *Retries) Register(c metric.Collector) error {
	if slices.Contains(retryMetrics, c.Describe().Name) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.collectors = append(r.collectors, c)
	}
	return nil
}

// Unregister implements metric.Registry.
func (r *Retries) Unregister(c metric.Collector) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.collectors, c); i >= 0 {
		r.collectors = slices.Delete(r.collectors, i, i+1)
	}
}

// Sum returns the number of counted attempts so far.
func (r *Retries) Sum() (sum int) {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.collectors {
		c.Collect(func(_ string, value float64) { sum += int(value) })
	}
	return sum
}

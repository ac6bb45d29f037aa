package sim

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// coverage adds up the servers' counters over all of their processes: a run in which nothing was elected has shown nothing.
type coverage struct {
	mu         sync.Mutex
	registries []*prometheus.Registry
}

// registry is for one more process.
func (c *coverage) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registries = append(c.registries, r)
	return r
}

// covered are the counters that tell what the machinery had to do.
var covered = map[string]string{
	"tidemark_host_elections_won_total":       "elections",
	"tidemark_host_snapshots_installed_total": "snapshots installed",
	"tidemark_host_snapshots_failed_total":    "snapshots failed",
	"tidemark_host_dropped_proposals_total":   "proposals dropped",
	"tidemark_replica_duplicates_total":       "retries recognised",
}

// sum is called when all processes have ended, or nearly so.
func (c *coverage) sum() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := make(map[string]int)
	for _, r := range c.registries {
		families, err := r.Gather()
		if err != nil {
			continue // a process that is going away; what it can still tell is in the result all the same
		}
		for _, f := range families {
			if name, ok := covered[f.GetName()]; ok {
				for _, m := range f.GetMetric() {
					sums[name] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return sums
}

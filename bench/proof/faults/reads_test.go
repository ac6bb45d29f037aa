package faults

import (
	"context"
	"strings"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// counts has the counters of one client that was opened with kv.Metrics(counts).
type counts struct{ vecs map[string]*metric.Vec }

var _ metric.Registry = counts{}

func newCounts() counts { return counts{make(map[string]*metric.Vec)} }

// Register implements metric.Registry.
func (c counts) Register(m metric.Collector) error {
	if v, ok := m.(*metric.Vec); ok {
		c.vecs[v.Describe().Name] = v
	}
	return nil
}

// Unregister implements metric.Registry.
func (c counts) Unregister(metric.Collector) {}

// all returns the counts of a metric by its label; empty if the client has no such metric.
func (c counts) all(name string) map[string]float64 {
	found := make(map[string]float64)
	if v := c.vecs[name]; v != nil {
		v.Collect(func(label string, n float64) { found[label] = n })
	}
	return found
}

// less subtracts earlier counts.
func less(now, before map[string]float64) map[string]float64 {
	apart := make(map[string]float64, len(now))
	for label, n := range now {
		if n -= before[label]; n != 0 {
			apart[label] = n
		}
	}
	return apart
}

// sumOf adds up the samples of a metric whose labels contain the text.
func sumOf(samples []fleet.Sample, name, labels string) (sum float64) {
	for _, s := range samples {
		if s.Name == name && strings.Contains(s.Labels, labels) {
			sum += s.Value
		}
	}
	return sum
}

// replicaReads is the number of reads that a server's replicas have served: as leaders, and because
// the timestamp was closed.
type replicaReads struct{ leading, closed float64 }

func readsAt(ctx context.Context, s *fleet.Server) (r replicaReads, err error) {
	samples, err := s.Metrics(ctx)
	if err != nil {
		return r, err
	}
	const name = "tidemark_replica_reads_total"
	r.closed = sumOf(samples, name, `path="closed"`)
	r.leading = sumOf(samples, name, "") - r.closed
	return r, nil
}

package embedded

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/authn"
)

// requestTimes makes the metric of the duration of requests. It returns a function that observes a
// request, and a function that returns what was observed so far.
func requestTimes(r prometheus.Registerer) (func(rpc.RequestKind, time.Duration),
	func() loadmeter.Latencies) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_rpc_request_seconds", Help: "How long a request of a client takes on the " +
			"server, waits for locks, disks and other servers included, by the kind of request. One " +
			"request in 64 is timed.",
		// clusterpb.RequestTimes has the same buckets.
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 19)}, []string{"kind"})
	replace(r, seconds)
	var kinds [rpc.RequestKinds]prometheus.Observer
	for k := range rpc.RequestKinds {
		kinds[k] = seconds.WithLabelValues(k.String())
	}
	return func(kind rpc.RequestKind, took time.Duration) { kinds[kind].Observe(took.Seconds()) },
		func() (all loadmeter.Latencies) {
			for k := range kinds {
				all[k] = countsOf(kinds[k])
			}
			return all
		}
}

// countsOf reads a histogram: the number of values in each bucket, and at the end the number of all
// larger values.
func countsOf(o prometheus.Observer) []uint64 {
	metric, ok := o.(prometheus.Metric)
	var written dto.Metric
	if !ok || metric.Write(&written) != nil {
		return nil
	}
	h := written.GetHistogram()
	var counts []uint64
	before := uint64(0)
	for _, b := range h.GetBucket() {
		counts = append(counts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	return append(counts, h.GetSampleCount()-min(before, h.GetSampleCount()))
}

// showExpiry makes the metric with the expiry of the server's certificate.
func showExpiry(r prometheus.Registerer, files *authn.TLSFiles) {
	replace(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_tls_certificate_expiry_timestamp_seconds", Help: "When the server's " +
			"certificate runs out, in seconds since 1970. Only with TLS.",
	}, func() float64 { return float64(files.Expires().Unix()) }))
}

// replace registers a collector. It replaces a collector of the same name, which a server that was
// started earlier has registered in the same registry.
func replace(r prometheus.Registerer, c prometheus.Collector) {
	r.Unregister(c)
	r.MustRegister(c)
}

// showMemory makes the metrics with the division of memory.
func showMemory(r prometheus.Registerer, sizes *memory.Sizes) {
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_memory_limit_bytes",
		Help: "How much memory the server may use."})
	limit.Set(float64(sizes.Limit))
	parts := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tidemark_memory_part_bytes",
		Help: "How much of its memory limit the server gives each of its parts."}, []string{"use"})
	for _, p := range sizes.Parts() {
		parts.WithLabelValues(p.Name).Set(float64(p.Bytes))
	}
	replace(r, limit)
	replace(r, parts)
}

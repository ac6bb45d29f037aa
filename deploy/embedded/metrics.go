package embedded

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/authn"
)

// requestTimes makes the metric of how long requests take, and returns the function that observes a
// request.
func requestTimes(r prometheus.Registerer) func(rpc.RequestKind, time.Duration) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_rpc_request_seconds", Help: "How long a request of a client takes on the " +
			"server, waits for locks, disks and other servers included, by the kind of request. One " +
			"request in 64 is timed.",
		Buckets: prometheus.ExponentialBuckets(50e-6, 2, 19)}, []string{"kind"})
	replace(r, seconds)
	var kinds [rpc.RequestKinds]prometheus.Observer
	for k := range rpc.RequestKinds {
		kinds[k] = seconds.WithLabelValues(k.String())
	}
	return func(kind rpc.RequestKind, took time.Duration) { kinds[kind].Observe(took.Seconds()) }
}

// showExpiry makes the metric that tells when the server's certificate runs out.
func showExpiry(r prometheus.Registerer, files *authn.TLSFiles) {
	replace(r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_tls_certificate_expiry_timestamp_seconds", Help: "When the server's " +
			"certificate runs out, in seconds since 1970. Only with TLS.",
	}, func() float64 { return float64(files.Expires().Unix()) }))
}

// replace registers a collector. A collector of the same name, of a server that was started before
// with the same registry, goes.
func replace(r prometheus.Registerer, c prometheus.Collector) {
	r.Unregister(c)
	r.MustRegister(c)
}

// showMemory makes the metrics that tell how memory is divided.
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

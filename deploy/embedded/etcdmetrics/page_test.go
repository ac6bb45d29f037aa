package etcdmetrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// TestPage: own metrics are summed over what they are not asked by, of the core alone; slow
// applications are those above a bound; a server that is no member shows none of that.
func TestPage(t *testing.T) {
	own, process, more := prometheus.NewRegistry(), prometheus.NewRegistry(), prometheus.NewRegistry()
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_rpc_peer_sent_bytes_total"}, []string{"part", "class"})
	sent.WithLabelValues("core", "control").Add(1)
	sent.WithLabelValues("core", "consensus").Add(2)
	sent.WithLabelValues("node", "consensus").Add(4)
	apply := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: applies,
		Buckets: []float64{0.01, 0.08, 0.16, 0.32}}, []string{"part"})
	for _, seconds := range []float64{0.001, 0.1, 0.2, 5} {
		apply.WithLabelValues("core").Observe(seconds)
	}
	clients := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidemark_rpc_client_sent_bytes_total"})
	clients.Add(8)
	own.MustRegister(sent, apply, clients)
	member := true
	page := &Page{Own: own, Process: process, More: more,
		State: func() (State, bool) { return State{IsLeader: true, Quota: 9}, member }}
	check := func(want map[string]float64) {
		t.Helper()
		all, err := page.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range all {
			m := f.Metric[0]
			got[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
			if f.GetType() == dto.MetricType_UNTYPED {
				t.Errorf("%s has no type", f.GetName())
			}
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s is %v, want %v", name, got[name], value)
			}
		}
		if _, shown := got["etcd_server_is_leader"]; shown != member {
			t.Errorf("a member: %v, and it shows whether it leads: %v", member, shown)
		}
	}
	check(map[string]float64{"etcd_network_peer_sent_bytes_total": 3,
		"etcd_disk_backend_commit_duration_seconds": 4, "etcd_server_slow_apply_total": 2,
		"etcd_network_client_grpc_sent_bytes_total": 8, "etcd_server_is_leader": 1,
		"etcd_server_quota_backend_bytes": 9})
	member = false
	check(map[string]float64{"etcd_network_client_grpc_sent_bytes_total": 8,
		"etcd_network_peer_sent_bytes_total": 0})
}

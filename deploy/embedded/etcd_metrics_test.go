package embedded

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

// asked are the metrics that the alerts and the dashboard of etcd's mixin ask for, which
// kube-prometheus has, with the labels that they ask by; and those of older dashboards and of
// etcdctl check.
var asked = map[string][]string{
	"etcd_server_has_leader": nil, "etcd_server_leader_changes_seen_total": nil,
	"etcd_server_is_leader": nil, "etcd_server_id": {"server_id"},
	"etcd_server_version":                   {"server_version"},
	"etcd_server_proposals_committed_total": nil, "etcd_server_proposals_applied_total": nil,
	"etcd_server_proposals_pending": nil, "etcd_server_proposals_failed_total": nil,
	"etcd_server_slow_apply_total": nil, "etcd_server_heartbeat_send_failures_total": nil,
	"etcd_server_quota_backend_bytes":               nil,
	"etcd_disk_wal_fsync_duration_seconds":          nil,
	"etcd_disk_backend_commit_duration_seconds":     nil,
	"etcd_mvcc_db_total_size_in_bytes":              nil,
	"etcd_mvcc_db_total_size_in_use_in_bytes":       nil,
	"etcd_network_peer_sent_bytes_total":            nil,
	"etcd_network_peer_received_bytes_total":        nil,
	"etcd_network_peer_sent_failures_total":         nil,
	"etcd_network_peer_round_trip_time_seconds":     {"To"},
	"etcd_network_client_grpc_received_bytes_total": nil,
	"etcd_network_client_grpc_sent_bytes_total":     nil,
	"etcd_debugging_mvcc_watcher_total":             nil,
	"etcd_debugging_mvcc_watch_stream_total":        nil,
	"etcd_debugging_mvcc_slow_watcher_total":        nil,
	"etcd_debugging_mvcc_current_revision":          nil,
	"etcd_debugging_mvcc_compact_revision":          nil,
	"grpc_server_handling_seconds":                  {"grpc_type", "grpc_service", "grpc_method"},
	"grpc_server_started_total":                     {"grpc_type", "grpc_service", "grpc_method"},
	"grpc_server_handled_total":                     {"grpc_type", "grpc_service", "grpc_method", "grpc_code"},
	"grpc_server_msg_sent_total":                    {"grpc_type", "grpc_service", "grpc_method"},
	"process_resident_memory_bytes":                 nil, "process_open_fds": nil, "go_goroutines": nil,
}

// moves are those that a load moves on the leader. The others are still while all is well.
var moves = []string{"etcd_server_proposals_committed_total",
	"etcd_server_proposals_applied_total", "etcd_disk_wal_fsync_duration_seconds",
	"etcd_disk_backend_commit_duration_seconds", "etcd_mvcc_db_total_size_in_use_in_bytes",
	"etcd_network_peer_sent_bytes_total", "etcd_network_peer_received_bytes_total",
	"etcd_network_client_grpc_received_bytes_total", "etcd_network_client_grpc_sent_bytes_total",
	"etcd_debugging_mvcc_current_revision", "grpc_server_started_total",
	"grpc_server_handled_total", "grpc_server_msg_sent_total", "etcd_debugging_mvcc_watcher_total"}

// families reads a page of metrics.
func families(t *testing.T, at string) map[string]*dto.MetricFamily {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	text := httpGet(t, client, "http://"+at+"/metrics", "")
	page, ok := strings.CutPrefix(text, "200 ")
	if !ok {
		t.Fatalf("%s: %.200s", at, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewBufferString(page))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// total adds up the series of a family.
func total(f *dto.MetricFamily) (sum float64) {
	for _, m := range f.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
			float64(m.GetHistogram().GetSampleCount())
	}
	return sum
}

// TestEtcdMetrics: a member has the metrics that etcd's dashboards and alerts ask for, of the kinds
// and with the labels of a real etcd, at the port of its clients, and they move.
func TestEtcdMetrics(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Members: 3, Args: []string{"--unsafe-no-fsync"}})
	cluster := startEtcd(t, nil)
	ctx := t.Context()
	leader := 0
	awaitTrue(t, "a member leads", func() bool {
		for i := range 3 {
			if l, _ := cluster.Server(i).member.coordination().Leadership(); l.Serving {
				leader = i
				return true
			}
		}
		return false
	})
	at := cluster.Endpoints()[leader]
	// The way to other members and back is timed in the background, and etcd's first look is later.
	awaitTrue(t, "members time the way to each other", func() bool {
		return total(families(t, at)["etcd_network_peer_round_trip_time_seconds"]) >= 2
	})
	before := families(t, at)
	client := etcdClient(t, nil, at)
	watch := client.Watch(ctx, "k", clientv3.WithCreatedNotify())
	<-watch
	for range 20 {
		if _, err := client.Put(ctx, "k", "v"); err != nil {
			t.Fatal(err)
		}
	}
	theirs, after := families(t, etcd.Endpoints()[0]), families(t, at)
	for name, labels := range asked {
		f := after[name]
		if f == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		if of := theirs[name]; of != nil && of.GetType() != f.GetType() {
			t.Errorf("%s is a %v, in etcd a %v", name, f.GetType(), of.GetType())
		}
		for _, want := range labels {
			found := false
			for _, l := range f.Metric[0].Label {
				found = found || l.GetName() == want
			}
			if !found {
				t.Errorf("%s has no label %s", name, want)
			}
		}
	}
	for _, name := range moves {
		if from, to := total(before[name]), total(after[name]); to <= from {
			t.Errorf("%s went from %v to %v", name, from, to)
		}
	}
	// The alerts compare both sizes with the quota, whether there is one or not.
	if quota := total(after["etcd_server_quota_backend_bytes"]); quota <=
		total(after["etcd_mvcc_db_total_size_in_bytes"]) {
		t.Errorf("the quota is %v", quota)
	}
	if total(after["etcd_server_has_leader"]) != 1 || total(after["etcd_server_is_leader"]) != 1 ||
		total(after["etcd_server_leader_changes_seen_total"]) < 1 {
		t.Errorf("a leader: %v", after["etcd_server_is_leader"])
	}
	// A server that is no member has its calls and its process, and nothing that is a member's.
	node := cluster.Endpoints()[3]
	if _, err := etcdClient(t, nil, node).Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	other := families(t, node)
	if total(other["grpc_server_handled_total"]) < 1 || other["process_open_fds"] == nil ||
		other["etcd_server_has_leader"] != nil {
		t.Errorf("a server that is no member has %d metrics", len(other))
	}
}

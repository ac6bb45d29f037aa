package embedded

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
)

// The metrics of a running server are named and described as Prometheus wants it. Those of the
// process are among them, and each renamed metric under both of its names.
func TestMetricsPassPromtool(t *testing.T) {
	cluster, err := StartCluster(t.Context(),
		ClusterConfig{Dir: t.TempDir(), Nodes: 1, Cores: 1, Listen: "127.0.0.1:0",
			HTTP: "127.0.0.1:0", Version: "v-test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	// A client that has done something has metrics too.
	client, err := kv.Open(ctx, cluster.Endpoints(), kvprom.Metrics(cluster.configs[0].Registry))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	keyspace, err := client.CreateKeyspace(ctx, "k", kv.Hash(1), kv.Replicas(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(ctx,
		func(tx *kv.Txn) error { return tx.Put(keyspace, []byte("a"), nil) }); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + cluster.http.Address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(strings.NewReader(string(text))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes",
		"process_open_fds", `tidemark_build_info{goversion="`, `version="v-test"`} {
		if !strings.Contains(string(text), name) {
			t.Errorf("there is no %s", name)
		}
	}
	// Those that have no value as long as nothing fails and no changes are consumed.
	empty := []string{"tidemark_client_txn_failures_total", "tidemark_client_txn_refreshes_total",
		"tidemark_client_txn_restarts_total", "tidemark_client_txn_span_lock_attempts_total",
		"tidemark_core_consumer_retention_used_ratio"}
	for name, old := range prom.OldNames() {
		if slices.Contains(empty, name) {
			continue
		}
		for _, name := range []string{name, old} {
			if !strings.Contains(string(text), "# TYPE "+name+" ") {
				t.Errorf("there is no %s", name)
			}
		}
	}
}

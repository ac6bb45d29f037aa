package monitoring

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// ofPrometheus are what Prometheus itself makes, with the labels that are used.
var ofPrometheus = []Metric{
	metric(Gauge, "up"),
	metric(Gauge, "ALERTS", "alertname", "alertstate", "severity"),
}

// declared finds the metric of which an expression names a series, and the labels that it has.
func declared(series string) (m Metric, labels []string, ok bool) {
	for _, m := range slices.Concat(Metrics, ofPrometheus) {
		labels := slices.Concat(m.Labels, targetLabels)
		if m.Kind != Histogram {
			if m.Name == series {
				return m, labels, true
			}
			continue
		}
		switch series {
		case m.Name + "_bucket":
			return m, append(labels, "le"), true
		case m.Name + "_sum", m.Name + "_count":
			return m, labels, true
		}
	}
	return Metric{}, nil, false
}

// All that dashboards and rules name is declared, and all that is declared is named somewhere.
func TestExpressionsNameDeclaredMetrics(t *testing.T) {
	expressions := make(map[string]string)
	for _, a := range Alerts() {
		expressions[a.Name] = a.Expr
	}
	for _, q := range Questions(func(string) string { return "5m" }) {
		expressions[q.Panel] = q.Expr
	}
	unused := make(map[string]bool)
	for _, m := range Metrics {
		if unused[m.Name] {
			t.Errorf("%s is declared twice", m.Name)
		}
		unused[m.Name] = true
	}
	for where, expr := range expressions {
		p, err := parse(expr)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		var known []string
		for _, u := range p.uses {
			m, labels, ok := declared(u.metric)
			if !ok {
				t.Errorf("%s: the metric %s is not declared in metrics.go", where, u.metric)
			}
			delete(unused, m.Name)
			known = append(known, labels...)
			for _, label := range u.labels {
				if ok && !slices.Contains(labels, label) {
					t.Errorf("%s: %s has no label %s", where, u.metric, label)
				}
			}
		}
		for _, label := range p.labels {
			if !slices.Contains(known, label) {
				t.Errorf("%s: none of its metrics has the label %s", where, label)
			}
		}
	}
	for name := range unused {
		t.Errorf("%s is declared, and neither dashboards nor rules use it", name)
	}
}

// Summaries and descriptions use labels that the alert has.
func TestTemplatesNameLabelsOfTheAlert(t *testing.T) {
	label := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, a := range Alerts() {
		p, err := parse(a.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range label.FindAllStringSubmatch(a.Summary+a.Description, -1) {
			has := slices.Contains(p.labels, found[1])
			if len(p.labels) == 0 { // nothing is grouped
				has = slices.Contains(targetLabels, found[1])
			}
			if !has {
				t.Errorf("%s: its text names the label %s, which its expression does not leave", a.Name,
					found[1])
			}
		}
	}
}

// A running cluster exports each metric with the labels that are declared, but for the rare ones.
func TestClusterExportsMetrics(t *testing.T) {
	exported := scrape(t, runCluster(t))
	for _, m := range Metrics {
		got, ok := exported[m.Name]
		if m.Rare != "" {
			if ok {
				t.Errorf("%s is not rare (registered by %s)", m.Name, m.Rare)
			}
			continue
		}
		if !ok {
			t.Errorf("the cluster exports no %s", m.Name)
			continue
		}
		if got.kind != string(m.Kind) {
			t.Errorf("%s is a %s, declared as a %s", m.Name, got.kind, m.Kind)
		}
		delete(got.labels, "le")
		delete(got.labels, "server")
		want := slices.Sorted(slices.Values(m.Labels))
		if labels := slices.Sorted(maps.Keys(got.labels)); !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %v, declared are %v", m.Name, labels, want)
		}
	}
}

// runCluster runs a cluster that has done a little of everything, and returns the address of its
// metrics.
func runCluster(t *testing.T) (url string) {
	http := porttest.Address(t)
	cluster, err := embedded.StartCluster(t.Context(), embedded.ClusterConfig{Dir: t.TempDir(),
		Nodes: 3, Cores: 1, Listen: "127.0.0.1:0", HTTP: http})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	client, err := kv.Open(ctx, cluster.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	keyspace, err := client.CreateKeyspace(ctx, "k", kv.Hash(2), kv.QuotaRequests(1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		key := fmt.Appendf(nil, "key %d", i)
		if _, err := keyspace.Put(ctx, key, key); err != nil {
			t.Fatal(err)
		}
		if _, err := keyspace.Get(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Update(ctx, func(tx *kv.Txn) error {
		return tx.Put(keyspace, []byte("a"), nil)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.New(client).CreateBackupSchedule(ctx, admin.BackupSchedule{Name: "s",
		Target: "file://" + t.TempDir(), Full: time.Hour, Log: time.Second}); err != nil {
		t.Fatal(err)
	}
	for { // the metrics of a schedule are there when its first backup is
		all, err := admin.New(client).BackupSchedules(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 && all[0].Last != "" {
			break
		}
		time.Sleep(20 * time.Millisecond) // asked again
	}
	return "http://" + http + "/metrics"
}

// family is what is exported of a metric: its type, and the labels of its series.
type family struct {
	kind   string
	labels map[string]bool
}

// scrape reads metrics in Prometheus' text format.
func scrape(t *testing.T, url string) map[string]family {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s", url, response.Status)
	}
	families := make(map[string]family)
	label := regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	current := ""
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if typed, ok := strings.CutPrefix(lines.Text(), "# TYPE "); ok {
			name, kind, _ := strings.Cut(typed, " ")
			current, families[name] = name, family{kind, make(map[string]bool)}
		}
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		for _, found := range label.FindAllStringSubmatch(lines.Text(), -1) {
			families[current].labels[found[1]] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return families
}

package prom_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
)

// A renamed metric is gathered under both names, with the same values and labels, also if it is a
// histogram; the help text of the old name has the new one. What was not renamed is gathered once.
func TestRenamedMetricsAreGatheredUnderBothNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	unhealthy := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_node_unhealthy", Help: "H.",
		ConstLabels: prometheus.Labels{"part": "node"}})
	lag := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tidemark_replica_feed_lag_seconds",
		Help: "L."})
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_node_leaders", Help: "O."})
	registry.MustRegister(unhealthy, lag, other)
	unhealthy.Set(1)
	lag.Observe(3)
	gatherer := prom.WithOldNames(registry)
	want := []string{
		"tidemark_node_leaders GAUGE 0",
		"tidemark_node_unfit GAUGE part=node 1",
		"tidemark_node_unhealthy GAUGE part=node 1",
		"tidemark_replica_changes_lag_seconds HISTOGRAM 0",
		"tidemark_replica_feed_lag_seconds HISTOGRAM 0",
	}
	if got := shown(t, gatherer); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if help := families[1].GetHelp(); !strings.Contains(help, "name of tidemark_node_unhealthy.") {
		t.Errorf("the old name's help is %q", help)
	}
	if n := families[3].GetMetric()[0].GetHistogram().GetSampleCount(); n != 1 {
		t.Errorf("the histogram has %d observations under its old name", n)
	}
}

// A registry with old names registers and unregisters both, and is gathered with old names without
// telling one twice.
func TestRegistryWithOldNames(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := prom.RegistryWithOldNames(registry)
	commits := metric.NewVec("tidemark_client_txn_commits_total", "C.", "phases")
	feeds := metric.NewGauge("tidemark_client_feeds", "F.", nil)
	for _, c := range []metric.Collector{commits, feeds} {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	commits.With("one").Add(2)
	want := []string{
		"tidemark_client_feeds GAUGE 0",
		"tidemark_client_transaction_commits_total COUNTER phases=one 2",
		"tidemark_client_txn_commits_total COUNTER phases=one 2",
	}
	if got := shown(t, registry); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := shown(t, prom.WithOldNames(registry)); !slices.Equal(got, want) {
		t.Errorf("with old names: %q", got)
	}
	var there *metric.RegisteredError
	if err := r.Register(commits); !errors.As(err, &there) || there.Existing != commits {
		t.Errorf("registered twice: %v", err)
	}
	r.Unregister(commits)
	if got := shown(t, registry); !slices.Equal(got, want[:1]) {
		t.Errorf("after Unregister: %q", got)
	}
	if prom.RegistryWithOldNames(nil) != nil {
		t.Error("a registry of nothing")
	}
}

// No file of the project but the changelog and the list of old names has an old name of a metric:
// no dashboard, alert, page, test or program. Pages also write names without "tidemark_".
func TestNothingUsesOldNames(t *testing.T) {
	renamed := make(map[string]string)
	for name, old := range prom.OldNames() {
		renamed[old] = name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			renamed[old+suffix] = name + suffix
		}
	}
	for name := range prom.OldNames() {
		if again, is := renamed[name]; is {
			t.Errorf("%s is the new name of a metric, and the old one of %s", name, again)
		}
	}
	long, short := regexp.MustCompile("tidemark_[a-z0-9_]+"), regexp.MustCompile("`[a-z0-9_]+")
	files := 0
	err := filepath.WalkDir(root(t), func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "bin" || (name[0] == '.' && name != "..")) {
			return fs.SkipDir
		}
		kinds := []string{".go", ".md", ".json", ".yaml", ".yml", ".sh", ".tpl", ".patch"}
		if !entry.Type().IsRegular() || !slices.Contains(kinds, filepath.Ext(name)) ||
			strings.HasPrefix(name, "old_names") || name == "CHANGELOG.md" ||
			strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		found := long.FindAllString(string(text), -1)
		if strings.HasSuffix(name, ".md") {
			for _, word := range short.FindAllString(string(text), -1) {
				found = append(found, "tidemark_"+word[1:])
			}
		}
		for _, old := range found {
			if now, is := renamed[old]; is {
				t.Errorf("%s has %s, which is now %s", path, old, now)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 1000 {
		t.Errorf("%d files were looked at: where are the others?", files)
	}
}

// root is the folder of the module.
func root(t *testing.T) string {
	for at := "."; ; at = filepath.Join("..", at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		if len(at) > 60 {
			t.Fatal("there is no go.mod above this package")
		}
	}
}

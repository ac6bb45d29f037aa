package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// TestMetrics: they are there while the engine is open, tell what it did, and can be registered
// again after it was closed.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	fs := vfs.NewMem()
	for range 2 {
		l := openTestLog(t, Options{FS: fs, Registerer: registry})
		s := openTestState(t, Options{FS: fs, Registerer: registry})
		if err := errors.Join(put(l, true, "k", "v"), apply(s, version("k", 1), []byte("v")),
			s.Flush()); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), "tidemark_engine_") {
				t.Errorf("name %s", f.GetName())
			}
			for _, m := range f.GetMetric() {
				name := f.GetName() + "/" + m.GetLabel()[0].GetValue()
				if h := m.GetHistogram(); h != nil {
					values[name] = float64(h.GetSampleCount())
				} else {
					values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		for name, positive := range map[string]bool{
			"tidemark_engine_wal_sync_seconds/log":      true,
			"tidemark_engine_wal_sync_seconds/state":    false,
			"tidemark_engine_wal_input_bytes_total/log": true,
			"tidemark_engine_flushes_total/state":       true,
			"tidemark_engine_memtable_bytes/state":      true,
			"tidemark_engine_live_table_bytes/state":    true,
			"tidemark_engine_failed/log":                false,
			"tidemark_engine_full/state":                false,
			"tidemark_engine_corruptions_total/state":   false,
		} {
			if (values[name] > 0) != positive {
				t.Errorf("%s is %v", name, values[name])
			}
		}
		// The same directory elsewhere, so that only the metrics are in the way.
		if _, err := OpenLog(Options{FS: vfs.NewMem(), Dir: "/data/log",
			Registerer: registry}); err == nil {
			t.Error("two logs under the same name were taken")
		}
		if err := errors.Join(l.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if families, err := registry.Gather(); err != nil || len(families) > 0 {
			t.Errorf("after close: %d metrics, %v", len(families), err)
		}
	}
}

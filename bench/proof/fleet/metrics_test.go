package fleet

import (
	"strings"
	"testing"
)

func TestParseMetrics(t *testing.T) {
	samples, err := parseMetrics(
		"# HELP a b\n# TYPE a counter\na 1\nb{x=\"}\",y=\"2\"} 2.5e3 1700000000\n\n  c_total{} " +
			"NaN\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 3 || samples[0] != (Sample{Name: "a", Value: 1}) ||
		samples[1] != (Sample{Name: "b", Labels: `x="}",y="2"`, Value: 2500}) {
		t.Errorf("samples %+v", samples)
	}
	for _, bad := range []string{"a", "a{", "a{} ", "a x", "}{ 1"} {
		if got, err := parseMetrics(bad); err == nil {
			t.Errorf("%q was accepted: %+v", bad, got)
		}
	}
}

func TestSumTakesNamesWithAllWords(t *testing.T) {
	samples := []Sample{{Name: "raft_snapshots_received", Value: 2}, {Name: "raft_snapshots_sent",
		Value: 4}, {Name: "received", Value: 8}}
	if got := Sum(samples, "snapshot", "received"); got != 2 {
		t.Errorf("sum %v, want 2", got)
	}
	if got := Sum(samples, "snapshot"); got != 6 {
		t.Errorf("sum %v, want 6", got)
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add("a{b=\"c\"} 1 2\n# x\n")
	f.Fuzz(func(t *testing.T, page string) {
		samples, err := parseMetrics(page)
		if err == nil && len(samples) > strings.Count(page, "\n")+1 {
			t.Errorf("%d samples from fewer lines", len(samples))
		}
	})
}

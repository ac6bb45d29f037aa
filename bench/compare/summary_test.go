package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/bench"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{3, 1, 2}, spread{2, 1, 3}},
		{[]float64{4, 1, 2, 3}, spread{2.5, 1, 4}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
}

// measured makes a measurement with just enough in it.
func measured(
	subject, load string, throughput float64, p50 int64, cpu float64, errors uint64,
) *measurement {
	m := &measurement{Subject: subject, Load: load, ServerCPU: cpu, Result: &bench.Result{}}
	m.Result.Total = bench.Operation{Throughput: throughput, P50: p50, P95: 2 * p50, P99: 3 * p50,
		Max: 9 * p50, Errors: errors}
	if errors > 0 {
		m.Result.Total.Failures = []bench.Failure{{Class: "other", Count: errors, Example: "it broke"}}
	}
	return m
}

func TestSummariseTakesMediansAndAddsErrors(t *testing.T) {
	all := []*measurement{
		measured("etcd", putMany, 100, 10, 1, 0), measured("etcd", getOne, 7, 7, 7, 0),
		measured("etcd", putMany, 300, 30, 3, 2), measured("etcd", putMany, 200, 20, 2, 1),
	}
	got := summarise(all)
	if len(got) != 2 || got[0].Load != getOne || got[1].Load != putMany {
		t.Fatalf("summaries %+v; want one of each load, in the order of the loads", got)
	}
	s := got[1]
	if s.Throughput != (spread{200, 100, 300}) || s.P99.Median != 60 || s.Max != 270 ||
		s.Errors != 3 || s.Example != "it broke" {
		t.Errorf("summary %+v", s)
	}
}

func TestJudge(t *testing.T) {
	summaries := summarise([]*measurement{
		measured("etcd", putMany, 10_000, 20_000, 0.12, 0),
		measured(tidemarkName(8), putMany, 20_000, 9_000, 0.061, 0),
		measured(tidemarkName(64), putMany, 9_999, 9_000, 0.061, 0),
		measured("etcd", putOne, 1_000, 1_000, 1, 0),
		measured(tidemarkName(8), putOne, 1_500, 800, 1, 0),
		measured(tidemarkName(1), putOne, 1_500, 700, 1, 4),
		measured(tidemarkName(1), getOne, 1_500, 700, 1, 0),
	})
	type key struct {
		load, figure string
		partitions   int
	}
	met := map[key]bool{}
	for _, v := range judge(summaries) {
		met[key{v.Load, v.Figure, v.Partitions}] = v.Met
	}
	want := map[key]bool{
		{putMany, "throughput", 8}:           true,
		{putMany, "server CPU per 1,000", 8}: false,
		{putMany, "throughput", 64}:          false,
		{putOne, "median latency", 8}:        true,
		{putOne, "median latency", 1}:        false, // it answered with errors
	}
	if len(met) != len(want) {
		t.Errorf("verdicts %v, want %v", met, want)
	}
	for k, v := range want {
		if got, ok := met[k]; !ok || got != v {
			t.Errorf("%v: met %v (there: %v), want %v", k, got, ok, v)
		}
	}
}

func TestMarkdownAndJSON(t *testing.T) {
	r := &report{Size: size{}.withDefaults(true), Each: []*measurement{
		measured("etcd", putMany, 10_000, 20_000, 0.12, 0),
		measured(tidemarkName(8), putMany, 25_000, 9_000, 0.05, 1),
	}}
	r.Results = summarise(r.Each)
	r.Goals = judge(r.Results)
	r.Limits = summariseLimits([][]limit{{{Name: "echo", Callers: 1, Throughput: 5}},
		{{Name: "echo", Callers: 1, Throughput: 7}}})
	text := r.markdown()
	for _, want := range []string{
		"| size | 100000 records, values of 0 bytes; 3s measured after 1s of warm-up; 1 repetition(s) ",
		"| put, 256 clients: throughput | 8 | 10000 /s | 25000 /s | 2.50 | ≥ 2.0 | **no** |",
		"| etcd | 10000 | 20.00 ms | 40.00 ms | 60.00 ms | 180 ms | 0.1200",
		"Errors of Tidemark, 8 partitions under put, 256 clients, for example: it broke",
		"| echo | 1 | 6 [5 to 7] |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no line with %q:\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > 100 && !strings.HasPrefix(line, "|") {
			t.Errorf("a line that is no table's has more than 100 columns: %s", line)
		}
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

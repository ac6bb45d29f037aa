package main

import (
	"strings"
	"testing"
)

// inTurn makes a measurement of a variant.
func inTurn(v variant, load string, clients, turn int, throughput float64, p50 int64) *measurement {
	plain := tidemarkName(8)
	m := measured(v.name(plain), load, throughput, p50, 1, 0)
	m.plain, m.variant, m.Turn, m.Result.Clients = plain, v, turn, clients
	return m
}

func TestPairsDivideWithinATurn(t *testing.T) {
	var all []*measurement
	// The machine is three times as fast in the second turn: medians of each would hide it.
	for turn, speed := range []float64{1, 3, 1} {
		all = append(all,
			inTurn(variant{}, putMany, 256, turn, 960*speed, 106),
			inTurn(variant{old: true}, putMany, 256, turn, 1000*speed, 100),
			inTurn(variant{tls: true}, putMany, 256, turn, 800*speed, 100),
			inTurn(variant{}, getOne, 1, turn, 100*speed, 100),
			inTurn(variant{tls: true}, getOne, 1, turn, 95*speed, 130),
		)
	}
	got := map[string]string{}
	for _, p := range pairs(all) {
		got[p.What+"; "+p.Load+"; "+p.Figure] = p.Verdict
		if p.Ratio.Low != p.Ratio.High {
			t.Errorf("%+v: the ratio is the same in all turns", p)
		}
	}
	for key, want := range map[string]string{
		"new beside old; " + putMany + "; throughput":       pairFine,
		"new beside old; " + putMany + "; median latency":   pairMissed,
		"new beside old; " + putMany + "; p99 latency":      "",
		"TLS beside plain; " + putMany + "; throughput":     pairMissed,
		"TLS beside plain; " + putMany + "; median latency": "",
		"TLS beside plain; " + getOne + "; throughput":      pairFine,
		"TLS beside plain; " + getOne + "; median latency":  pairMissed,
	} {
		if verdict, ok := got[key]; !ok || verdict != want {
			t.Errorf("%s: %q (there: %t), want %q", key, verdict, ok, want)
		}
	}
	var b strings.Builder
	writePairs(&b, pairs(all))
	want := "| put, 256 clients; Tidemark, 8 partitions | throughput | 1000 /s | 960 /s | 0.96 " +
		"[0.96 to 0.96] | ≥ 0.95 | yes |"
	if !strings.Contains(b.String(), want) {
		t.Errorf("no line %q in\n%s", want, b.String())
	}
}

func TestAMissIsUnsureIfATurnSaysOtherwise(t *testing.T) {
	p := pair{Ratio: spread{Median: 0.9, Low: 0.8, High: 0.96}}
	if p.judge(0.95, true); p.Verdict != pairUnsure {
		t.Errorf("%q, want %q", p.Verdict, pairUnsure)
	}
}

func TestEndedPhase(t *testing.T) {
	for line, want := range map[string]string{
		"measure    3 of 3 s    80000 ops/s  mean 800µs":             "measure",
		"warm-up  1.0 of 1.0 s      100 ops/s  mean 800µs  2 errors": "warm-up",
		"measure    3 of 10 s    80000 ops/s  mean 800µs":            "",
		"load     100 of 100000 records (0 %), 10/s":                 "",
		"": "",
	} {
		phase, ok := endedPhase(line)
		if phase != want || ok != (want != "") {
			t.Errorf("%q: %q, %t", line, phase, ok)
		}
	}
}

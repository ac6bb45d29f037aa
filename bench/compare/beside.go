package main

import (
	"fmt"
	"strings"
)

// pair has two subjects that differ in one property: the binary, or TLS. Each figure of the second
// subject is divided by the figure of the first one in the same turn, which was measured just
// before or after. The median of these ratios is more reliable than the ratio of two medians if the
// machine has other load.
type pair struct {
	What string `json:"what"`
	Load string `json:"load"`
	// Base and Other are the subjects.
	Base   string `json:"base"`
	Other  string `json:"other"`
	Figure string `json:"figure"`
	// From and To are the medians of Base and Other.
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Ratio spread  `json:"ratio"`
	// AtLeast or AtMost is the limit of the median ratio. Both are 0 for a figure without a limit.
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	Verdict string  `json:"verdict"`
}

const (
	pairFine = "yes"
	// pairUnsure: the median violates the limit, but some turn does not.
	pairUnsure = "no, within the spread"
	pairMissed = "**no**"
)

// variant says how a subject differs from the subject with the same keyspace, with the binary under
// -tidemark and without TLS.
type variant struct{ old, tls bool }

func (v variant) String() string {
	var parts []string
	if v.old {
		parts = append(parts, "old")
	}
	if v.tls {
		parts = append(parts, "TLS")
	}
	return strings.Join(parts, ", ")
}

// name adds the variant to the name of a subject.
func (v variant) name(subject string) string {
	if s := v.String(); s != "" {
		return subject + " (" + s + ")"
	}
	return subject
}

// pairFigures are the figures that pairs compare. For each, they have the allowed loss of the new
// binary compared to the old one, and of TLS compared to no TLS.
var pairFigures = []struct {
	name         string
	value        func(*measurement) float64
	more         bool // a larger value is better
	new, tls     float64
	onlyOneCalls bool // the limit for TLS applies to one client
}{
	{"throughput", func(m *measurement) float64 { return m.Result.Total.Throughput }, true,
		0.95, 0.90, false},
	{"median latency", func(m *measurement) float64 { return float64(m.Result.Total.P50) }, false,
		1.05, 1.25, true},
	{"p99 latency", func(m *measurement) float64 { return float64(m.Result.Total.P99) },
		false, 0, 0, false},
	{"server CPU per 1,000", func(m *measurement) float64 { return m.ServerCPU }, false,
		1.05, 0, false},
	{"client CPU per 1,000", func(m *measurement) float64 { return m.ClientCPU }, false,
		1.05, 0, false},
}

// pairs compares all subjects that differ in one property.
func pairs(all []*measurement) []pair {
	type at struct {
		load, subject string
		turn          int
	}
	measured := make(map[at]*measurement)
	for _, m := range all {
		measured[at{m.Load, m.Subject, m.Turn}] = m
	}
	var found []pair
	compare := func(what string, first *measurement, base, other string, tls bool) {
		for _, f := range pairFigures {
			var from, to, ratios []float64
			for _, m := range all {
				o := measured[at{m.Load, other, m.Turn}]
				if m.Load != first.Load || m.Subject != base || o == nil || f.value(m) == 0 {
					continue
				}
				from, to = append(from, f.value(m)), append(to, f.value(o))
				ratios = append(ratios, f.value(o)/f.value(m))
			}
			if len(ratios) == 0 {
				continue
			}
			p := pair{
				What: what, Load: first.Load, Base: base, Other: other, Figure: f.name,
				From: spreadOf(from).Median, To: spreadOf(to).Median, Ratio: spreadOf(ratios),
			}
			bound := f.new
			if tls {
				bound = f.tls
				if f.onlyOneCalls && first.Result.Clients != 1 {
					bound = 0
				}
			}
			p.judge(bound, f.more)
			found = append(found, p)
		}
	}
	seen := make(map[at]bool)
	for _, l := range loads {
		for _, m := range all {
			key := at{m.Load, m.Subject, 0}
			if m.Load != l.Name || seen[key] {
				continue
			}
			seen[key] = true
			if m.variant.old {
				compare("new beside old", m, m.Subject, variant{tls: m.variant.tls}.name(m.plain), false)
			}
			if m.variant == (variant{}) && m.plain != "" {
				compare("TLS beside plain", m, m.Subject, variant{tls: true}.name(m.plain), true)
			}
		}
	}
	return found
}

// judge sets the limit and the verdict. A limit of 0 means none.
func (p *pair) judge(bound float64, more bool) {
	switch {
	case bound == 0:
		return
	case more:
		p.AtLeast = bound
	default:
		p.AtMost = bound
	}
	met := func(ratio float64) bool { return more && ratio >= bound || !more && ratio <= bound }
	switch {
	case met(p.Ratio.Median):
		p.Verdict = pairFine
	case met(p.Ratio.Low) || met(p.Ratio.High):
		p.Verdict = pairUnsure
	default:
		p.Verdict = pairMissed
	}
}

// writePairs prints one table for each differing property.
func writePairs(b *strings.Builder, all []pair) {
	what := ""
	for _, wanted := range []string{"new beside old", "TLS beside plain"} {
		for _, p := range all {
			if p.What != wanted {
				continue
			}
			if p.What != what {
				what = p.What
				fmt.Fprintf(b, "\n**%s**: the ratio of the figures of each turn, median [lowest "+
					"to highest]\n\n", what)
				b.WriteString("| case | figure | of | to | ratio | wanted | met |\n" +
					"|---|---|---:|---:|---:|---:|---|\n")
			}
			bound := ""
			switch {
			case p.AtLeast > 0:
				bound = fmt.Sprintf("≥ %.2f", p.AtLeast)
			case p.AtMost > 0:
				bound = fmt.Sprintf("≤ %.2f", p.AtMost)
			}
			fmt.Fprintf(b, "| %s; %s | %s | %s | %s | %.2f [%.2f to %.2f] | %s | %s |\n", p.Load, p.Other,
				p.Figure, pairValue(p.Figure, p.From), pairValue(p.Figure, p.To),
				p.Ratio.Median, p.Ratio.Low, p.Ratio.High, bound, p.Verdict)
		}
	}
}

func pairValue(figureName string, value float64) string {
	if figureName == "p99 latency" {
		return latency(value)
	}
	return figure(figureName, value)
}

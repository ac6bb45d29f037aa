package availability

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Sample is the result of one fault: the longest pause of any partition.
type Sample struct {
	Kind   string        `json:"kind"`
	What   string        `json:"what"`
	Hold   time.Duration `json:"hold_ns"`
	Writes time.Duration `json:"writes_ns"`
	Reads  time.Duration `json:"reads_ns"`
	// Quorum is true if every partition had a majority of its replicas that could serve, and clients
	// reached those replicas.
	Quorum bool `json:"quorum"`
	// LeftOut, if not empty, is the reason why the sample says nothing about the servers.
	LeftOut string `json:"left_out,omitempty"`
}

// Figures sum up some durations.
type Figures struct {
	Median time.Duration `json:"median_ns"`
	P90    time.Duration `json:"p90_ns"`
	Max    time.Duration `json:"max_ns"`
}

// FiguresOf sums durations up. Without durations all figures are 0. Quantiles are by the nearest
// rank.
func FiguresOf(all []time.Duration) Figures {
	if len(all) == 0 {
		return Figures{}
	}
	sorted := slices.Sorted(slices.Values(all))
	rank := func(q float64) time.Duration {
		return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
	}
	return Figures{Median: rank(0.5), P90: rank(0.9), Max: sorted[len(sorted)-1]}
}

// Row has the figures of one kind of fault. There is a row for the faults that left every partition
// its quorum, and a row for the faults that did not.
type Row struct {
	Kind    string  `json:"kind"`
	Quorum  bool    `json:"quorum"`
	Count   int     `json:"count"`
	LeftOut int     `json:"left_out"`
	Hold    Figures `json:"hold"`
	Writes  Figures `json:"writes"`
	Reads   Figures `json:"reads"`
}

// Table sums up samples by kind, in the order of the names.
func Table(samples []Sample) []Row {
	type key struct {
		kind   string
		quorum bool
	}
	groups := make(map[key][]Sample)
	for _, s := range samples {
		k := key{s.Kind, s.Quorum}
		groups[k] = append(groups[k], s)
	}
	var rows []Row
	for k, group := range groups {
		row := Row{Kind: k.kind, Quorum: k.quorum}
		var holds, writes, reads []time.Duration
		for _, s := range group {
			if s.LeftOut != "" {
				row.LeftOut++
				continue
			}
			row.Count++
			holds, writes, reads = append(holds, s.Hold), append(writes, s.Writes),
				append(reads, s.Reads)
		}
		row.Hold, row.Writes, row.Reads = FiguresOf(holds), FiguresOf(writes), FiguresOf(reads)
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		if c := strings.Compare(a.Kind, b.Kind); c != 0 {
			return c
		}
		if a.Quorum {
			return -1
		}
		return 1
	})
	return rows
}

// Markdown returns rows as a table. Times are in seconds.
func Markdown(rows []Row) string {
	var b strings.Builder
	b.WriteString("| fault | every partition keeps a quorum | faults | lasting (median, max) | " +
		"writes away: median, p90, max | reads away: median, p90, max |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		if r.Count == 0 {
			continue
		}
		quorum := "yes"
		if !r.Quorum {
			quorum = "no"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s, %s | %s | %s |\n", r.Kind, quorum, r.Count,
			seconds(r.Hold.Median), seconds(r.Hold.Max), triple(r.Writes), triple(r.Reads))
	}
	return b.String()
}

func triple(f Figures) string {
	return fmt.Sprintf("%s, %s, %s", seconds(f.Median), seconds(f.P90), seconds(f.Max))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

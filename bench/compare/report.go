package main

import (
	"fmt"
	"strings"
	"time"
)

// report is the result of one run.
type report struct {
	Time     time.Time      `json:"time"`
	Machine  machine        `json:"machine"`
	Versions []string       `json:"versions"`
	Size     size           `json:"size"`
	Limits   []limitSummary `json:"limits"`
	Results  []summary      `json:"results"`
	Goals    []verdict      `json:"goals"`
	Pairs    []pair         `json:"pairs,omitempty"`
	Each     []*measurement `json:"measurements"`
}

// heading returns the heading of the report on a page with several reports.
func (r *report) heading() string { return r.Time.Format(time.DateOnly) }

// markdown returns the report for people.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | |\n|---|---|\n| machine | %s |\n", r.Machine)
	fmt.Fprintf(&b, "| stores, which sync every write | %s |\n", strings.Join(r.Versions, "; "))
	fmt.Fprintf(&b, "| size | %d records, values of %d bytes; %v measured after %v of warm-up; "+
		"%d repetition(s) of %d turn(s): median [lowest to highest] |\n",
		r.Size.Records, r.Size.ValueSize, r.Size.Duration, r.Size.WarmUp,
		r.Size.Repetitions, r.Size.Rounds)
	if len(r.Goals) > 0 {
		b.WriteString("\n| goal | partitions | etcd | Tidemark | ratio | wanted | met |\n" +
			"|---|---:|---:|---:|---:|---:|---|\n")
		for _, g := range r.Goals {
			wanted := fmt.Sprintf("≥ %.1f", g.AtLeast)
			if g.AtMost > 0 {
				wanted = fmt.Sprintf("≤ %.1f", g.AtMost)
			}
			partitions := fmt.Sprint(g.Partitions)
			if g.Ordered {
				partitions += " by range"
			}
			met := "**no**"
			if g.Met {
				met = "yes"
			}
			fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %.2f | %s | %s |\n",
				g.Load, g.Figure, partitions, figure(g.Figure, g.Etcd),
				figure(g.Figure, g.Tidemark), g.Ratio, wanted, met)
		}
	}
	writePairs(&b, r.Pairs)
	last := ""
	for _, s := range r.Results {
		if s.Load != last {
			last = s.Load
			fmt.Fprintf(&b, "\n**%s**\n\n| store | ops/s | p50 | p95 | p99 | max "+
				"| server CPU s / 1,000 | client CPU s / 1,000 | server memory | errors |\n"+
				"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n", s.Load)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %.4f [%.4f to %.4f] | %.4f | %.0f MB | %d |\n",
			s.Subject, throughputSpread(s.Throughput), latencySpread(s.P50), latency(s.P95.Median),
			latency(s.P99.Median), latency(s.Max),
			s.ServerCPU.Median, s.ServerCPU.Low, s.ServerCPU.High, s.ClientCPU.Median,
			s.Memory.Median/(1<<20), s.Errors)
	}
	for _, s := range r.Results {
		if s.Errors > 0 {
			fmt.Fprintf(&b, "\nErrors of %s under %s, for example: %s\n", s.Subject, s.Load, s.Example)
		}
	}
	if len(r.Limits) > 0 {
		b.WriteString("\n**Limits of the machine in this run**\n\n" +
			"| what | callers | ops/s | p50 | p99 | CPU s / 1,000 |\n|---|---:|---:|---:|---:|---:|\n")
		for _, l := range r.Limits {
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %.4f |\n", l.Name, l.Callers,
				throughputSpread(l.Throughput), latencySpread(l.P50),
				latency(l.P99.Median), l.CPU.Median)
		}
		b.WriteString("\nThe CPU of the echo is its server's; that of the commits and syncs is " +
			"the whole process's.\n")
	}
	return b.String()
}

// figure formats a goal's figure with its unit.
func figure(name string, value float64) string {
	switch name {
	case "throughput":
		return fmt.Sprintf("%.0f /s", value)
	case "median latency":
		return latency(value)
	default:
		return fmt.Sprintf("%.4f s", value)
	}
}

func throughputSpread(s spread) string {
	if s.Low == s.High {
		return fmt.Sprintf("%.0f", s.Median)
	}
	return fmt.Sprintf("%.0f [%.0f to %.0f]", s.Median, s.Low, s.High)
}

func latencySpread(s spread) string {
	if s.Low == s.High {
		return latency(s.Median)
	}
	return fmt.Sprintf("%s [%s to %s]", latency(s.Median), latency(s.Low), latency(s.High))
}

// latency formats microseconds with about three digits.
func latency(micros float64) string {
	switch {
	case micros < 1000:
		return fmt.Sprintf("%.0f µs", micros)
	case micros < 100_000:
		return fmt.Sprintf("%.2f ms", micros/1000)
	case micros < 1_000_000:
		return fmt.Sprintf("%.0f ms", micros/1000)
	default:
		return fmt.Sprintf("%.2f s", micros/1_000_000)
	}
}

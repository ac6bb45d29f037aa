package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// slowShown is the maximum number of slow requests that are shown.
const slowShown = 8

// Lines returns the picture, at most height lines. A height of 0 means no limit. Lines may be
// longer than the terminal is wide.
func (v *View) Lines(height int) []string {
	lines := []string{v.headline(), ""}
	lines = append(lines, v.nodeLines()...)
	if hottest := v.Hottest(); len(hottest) > 0 {
		lines = append(lines, "", fmt.Sprintf("%-24s %9s %9s %9s %11s %5s", "HOTTEST PARTITIONS",
			"partition", "reads/s", "writes/s", "bytes/s", "node"))
		for _, p := range hottest {
			lines = append(lines, fmt.Sprintf("%-24s %9d %9s %9s %11s %5d", cut(p.Keyspace, 24), p.ID,
				rate(p.Reads), rate(p.Writes), size(p.Bytes), p.Node))
		}
	}
	if len(v.Slow) > 0 {
		lines = append(lines, "", fmt.Sprintf("%-24s %9s %9s %9s  %s", "SLOW REQUESTS", "took", "ago",
			"node", "where"))
		for _, x := range v.Slow[:min(len(v.Slow), slowShown)] {
			lines = append(lines, fmt.Sprintf("%-24s %9s %9s %9d  %s",
				cut(strings.TrimSpace(x.Kind+" "+x.Keyspace), 24), short(x.Took),
				short(max(0, v.At.Sub(x.Began.Add(x.Took)))), x.Node, where(x)))
		}
	}
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	return lines
}

// headline returns a summary of the cluster.
func (v *View) headline() string {
	alive, reads, writes := 0, 0.0, 0.0
	for _, n := range v.Rows() {
		if n.Alive {
			alive++
		}
		reads, writes = reads+n.Reads, writes+n.Writes
	}
	problems := "no problems"
	switch {
	case v.Problems == 1:
		problems = "1 problem, see tidemark status"
	case v.Problems > 1:
		problems = fmt.Sprintf("%d problems, see tidemark status", v.Problems)
	}
	return fmt.Sprintf("%s  %d of %d nodes alive  %s reads/s  %s writes/s  %s",
		v.At.Format(time.TimeOnly), alive, len(v.Nodes), rate(reads), rate(writes), problems)
}

func (v *View) nodeLines() []string {
	lines := []string{fmt.Sprintf("%-5s %9s %9s %15s %15s %6s %8s %8s %9s  %s", "NODE", "reads/s",
		"writes/s", "read p50/p99", "write p50/p99", "cpu %", "memory", "sync", "disk free", "address")}
	for _, n := range v.Rows() {
		if !n.Alive {
			lines = append(lines, fmt.Sprintf("%-5d down for %v  %s", n.ID, short(n.SilentFor), n.Address))
			continue
		}
		reads, writes := "-", "-"
		if n.Known {
			reads, writes = rate(n.Reads), rate(n.Writes)
		}
		processor, memory := "-", "-"
		if n.Examined {
			processor, memory = fmt.Sprintf("%.0f", 100*n.Processors), size(float64(n.Memory))
		}
		lines = append(lines, fmt.Sprintf("%-5d %9s %9s %15s %15s %6s %8s %8s %9s  %s", n.ID, reads,
			writes, pair(n.ReadHalf, n.ReadMost), pair(n.WriteHalf, n.WriteMost), processor, memory,
			orDash(n.LogSync), size(float64(n.DiskFree)), n.Address))
	}
	return lines
}

// where names the parts of a request that took the most time.
func where(x admin.SlowRequest) string {
	parts := slices.Clone(x.Parts)
	slices.SortStableFunc(parts, func(a, b admin.RequestPart) int { return int(b.Took - a.Took) })
	var words []string
	for _, p := range parts {
		if p.Took < x.Took/10 || len(words) == 3 {
			break
		}
		words = append(words, p.Name+" "+short(p.Took))
	}
	if x.Lock.Transaction != "" {
		words = append(words, "for transaction "+x.Lock.Transaction)
	}
	if x.Error != "" {
		words = append(words, "ended with "+x.Error)
	}
	return strings.Join(words, ", ")
}

func pair(half, most time.Duration) string {
	if half == 0 {
		return "-"
	}
	return short(half) + "/" + short(most)
}

func orDash(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return short(d)
}

// short formats a time with at most three digits.
func short(d time.Duration) string {
	switch {
	case d >= 100*time.Second:
		return d.Round(time.Second).String()
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0fms", d.Seconds()*1e3)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1fms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.0fµs", d.Seconds()*1e6)
}

// rate formats a number per second.
func rate(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0fk", n/1e3)
	case n >= 10 || n == 0:
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.1f", n)
}

// size formats a number of bytes.
func size(bytes float64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.0f %s", bytes, unit)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.1f TiB", bytes)
}

// cut shortens a name.
func cut(name string, most int) string {
	if r := []rune(name); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return name
}

package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// write prints the text below the table of operations.
func (x *Transactions) write(w io.Writer) error {
	var b strings.Builder
	count := func(n uint64) string { return groupDigits(strconv.FormatUint(n, 10)) }
	restarts := total(x.Restarts)
	fmt.Fprintf(&b, "run again: %s, %.1f %% of all", counted(restarts, "attempt"),
		100*x.RestartShare)
	if restarts > 0 {
		fmt.Fprintf(&b, " (%s)", countedBy(x.Restarts))
	}
	fmt.Fprintf(&b, "; at most %s for one transaction\n", counted(uint64(x.MostAttempts),
		"attempt"))
	if len(x.Commits) > 0 {
		fmt.Fprintf(&b, "commits by phases: %s\n", countedBy(x.Commits))
	}
	fmt.Fprintf(&b, "fairness: the slowest client did %s, %.0f %% of the median client's %s; "+
		"the longest wait was %.1f times the median\n",
		count(x.SlowestClient), 100*x.SlowestShare, count(x.MedianClient), x.LongestWait)
	if x.Verified != "" {
		fmt.Fprintf(&b, "verified: %s\n", x.Verified)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// countedBy lists names with their counts, the most frequent first.
func countedBy(counts map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %s", name, groupDigits(strconv.FormatUint(counts[name], 10)))
	}
	return strings.Join(parts, ", ")
}

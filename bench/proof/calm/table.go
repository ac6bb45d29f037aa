package calm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table returns the rows as text. For each kind of operation, in calm and in storm, the text has
// the numbers of operations that succeeded, failed, ended with an error that the API promises, or
// had too little time, and the number of retries.
func Table(rows []Row) string {
	var b strings.Builder
	const columns = "%-16s %9s %7s %9s %7s %8s  |%9s %7s %9s %7s %8s\n"
	fmt.Fprintf(&b, columns, "", "in calm:", "", "", "", "", "in storm:", "", "", "", "")
	fmt.Fprintf(&b, columns, "operation", "succeeded", "failed", "conflicts", "hasty", "retried",
		"succeeded", "failed", "conflicts",
		"hasty", "retried")
	cells := func(c Counts) (all []any) {
		for _, n := range []int{c.Succeeded, c.Failed, c.Conflicts, c.Hasty, c.Retried} {
			all = append(all, fmt.Sprint(n))
		}
		return all
	}
	for _, r := range ByKind(rows) {
		fmt.Fprintf(&b, columns, slices.Concat([]any{r.Kind}, cells(r.Calm), cells(r.Storm))...)
	}
	for _, r := range rows {
		if len(r.Reasons) > 0 {
			fmt.Fprintf(&b, "%s of %s failed in calm: %s\n", r.Kind, r.Workload, reasons(r.Reasons))
		}
	}
	return b.String()
}

// reasons returns errors with their numbers as text.
func reasons(counts map[string]int) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d times %s", counts[why], why))
	}
	return strings.Join(parts, ", ")
}

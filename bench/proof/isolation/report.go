package isolation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Report is the result of Check.
type Report struct {
	Level        Level
	Transactions int
	// Committed, Aborted and Unknown are the numbers of recorded outcomes. Observed is the number
	// of transactions of unknown outcome whose effect was seen; they count as committed.
	Committed, Aborted, Unknown, Observed int
	// Keys and Edges are the numbers of keys, and of edges in the dependency graph.
	Keys, Edges int
	// Findings has examples of each anomaly. Counts has the number of findings of each anomaly. A
	// strongly connected component of the dependency graph counts once for each of its most
	// elementary classes.
	Findings []Finding
	Counts   map[Anomaly]int
	// GaveUp: the search met its bound. Then there may be shorter cycles than the reported ones,
	// and a G-single may be reported as a G-nonadjacent. Every component is reported all the same.
	GaveUp bool
}

// Finding is one anomaly.
type Finding struct {
	Anomaly Anomaly
	// Breaks: the claimed level forbids the anomaly.
	Breaks bool
	// Cycle has the dependencies of a cycle. The last one leads back to the first.
	Cycle []Dependency
	// Component is the number of transactions in the component of a cycle.
	Component int
	// Text explains the finding: the transactions, and why each came before the next.
	Text string
}

// Dependency says that one transaction must come before another. The numbers are indices into the
// history.
type Dependency struct {
	From, To int
	// Kind is ww, wr, rw, process or realtime.
	Kind string
	// Why names the key and the values, or the times.
	Why string
}

// Has reports whether an anomaly was found, whether or not it breaks the level.
func (r Report) Has(a Anomaly) bool { return r.Counts[a] > 0 }

// Anomalies returns the names of the anomalies found, sorted.
func (r Report) Anomalies() []Anomaly {
	names := make([]Anomaly, 0, len(r.Counts))
	for name := range r.Counts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Err returns nil if no anomaly breaks the claimed level.
func (r Report) Err() error {
	var failures []error
	for _, f := range r.Findings {
		if f.Breaks {
			failures = append(failures, errors.New(f.String()))
		}
	}
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%v\n%w", r, errors.Join(failures...))
}

// String returns the report in one line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d transactions (%d committed, %d aborted, %d of unknown outcome, of which "+
		"%d were seen) on %d keys, %d dependencies: ",
		r.Transactions, r.Committed, r.Aborted, r.Unknown, r.Observed, r.Keys, r.Edges)
	var broken, allowed []string
	for _, name := range r.Anomalies() {
		text := fmt.Sprintf("%s (%d)", name, r.Counts[name])
		if slices.ContainsFunc(r.Findings,
			func(f Finding) bool { return f.Anomaly == name && f.Breaks }) {
			broken = append(broken, text)
		} else {
			allowed = append(allowed, text)
		}
	}
	if len(broken) == 0 {
		fmt.Fprintf(&b, "nothing contradicts %v", r.Level)
	} else {
		fmt.Fprintf(&b, "NOT %v: %s", r.Level, strings.Join(broken, ", "))
	}
	if len(allowed) > 0 {
		fmt.Fprintf(&b, "; allowed: %s", strings.Join(allowed, ", "))
	}
	if r.GaveUp {
		b.WriteString("; the search for shorter cycles was given up")
	}
	return b.String()
}

// String is the anomaly's name and explanation.
func (f Finding) String() string { return string(f.Anomaly) + ": " + f.Text }

// found reports an anomaly that is not a cycle.
func (c *checker) found(a Anomaly, format string, arguments ...any) {
	c.add(Finding{Anomaly: a}, func() string { return fmt.Sprintf(format, arguments...) })
}

// add counts a finding, and keeps it if there are not enough examples yet.
func (c *checker) add(f Finding, text func() string) {
	c.report.Counts[f.Anomaly]++
	if c.report.Counts[f.Anomaly] > c.options.Examples {
		return
	}
	f.Breaks = c.options.forbids(f.Anomaly)
	f.Text = text()
	c.report.Findings = append(c.report.Findings, f)
}

package doctor

import (
	"fmt"
	"slices"
)

// Level says how much a finding matters.
type Level int

// The levels. Advice is not a problem now. Warning is a problem, or becomes one. Bad means that
// something does not work.
const (
	Fine Level = iota
	Advice
	Warning
	Bad
)

// String implements fmt.Stringer.
func (l Level) String() string {
	switch l {
	case Fine:
		return "ok"
	case Advice:
		return "advice"
	case Warning:
		return "warning"
	}
	return "bad"
}

// Finding is one problem or advice.
type Finding struct {
	Level Level
	// Subjects are the affected servers, nodes, keyspaces or the like; empty for the cluster.
	Subjects []string
	// What is the finding, and Do the remedy, both as sentences without a full stop.
	What, Do string
}

// Check is the result of one area.
type Check struct {
	// Area is a word or two: "disks".
	Area string
	// Looked describes the examined objects: "3 disks, 71 GiB free at least".
	Looked   string
	Findings []Finding
}

// Level is the worst level of the findings.
func (c *Check) Level() (worst Level) {
	for _, f := range c.Findings {
		worst = max(worst, f.Level)
	}
	return worst
}

// add adds a finding. The same finding for another subject is merged into one.
func (c *Check) add(level Level, subject, do, what string, of ...any) {
	f := Finding{Level: level, What: fmt.Sprintf(what, of...), Do: do}
	i := slices.IndexFunc(c.Findings, func(g Finding) bool {
		return subject != "" && g.Level == level && g.What == f.What && g.Do == do
	})
	if i < 0 {
		i, c.Findings = len(c.Findings), append(c.Findings, f)
	}
	if subject != "" {
		c.Findings[i].Subjects = append(c.Findings[i].Subjects, subject)
	}
}

// Report has the checks of all areas.
type Report []Check

// Level is the worst level of all checks.
func (r Report) Level() (worst Level) {
	for i := range r {
		worst = max(worst, r[i].Level())
	}
	return worst
}

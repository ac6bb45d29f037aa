package calm

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// leastRate is the least part of the operations of a kind that must succeed in calm.
	leastRate = 0.99
	// leastBegun is the number of operations of a kind from which on at least one must have succeeded.
	// A kind with fewer operations may have met only storms by chance.
	leastBegun = 20
	// maxReasons is the number of different errors that each row counts. All further errors count as
	// one.
	maxReasons = 16
)

// Tally counts operations by outcome. The zero Tally is empty. Its methods are safe for concurrent
// use.
type Tally struct {
	mu struct {
		sync.Mutex
		rows map[name]*Row
	}
}

// name identifies a row. There are as many rows as workloads have kinds of operations.
type name struct{ kind, workload string }

// Counts has the numbers of operations by outcome.
type Counts struct {
	Succeeded, Failed int
	// Conflicts counts operations that ended with an error that the API promises. Hasty counts
	// operations that had too little time.
	Conflicts, Hasty int
	// Retried is the number of attempts that were followed by another attempt, over all operations.
	Retried int
}

// begun returns the number of all counted operations.
func (c Counts) begun() int { return c.Succeeded + c.Failed + c.Conflicts + c.Hasty }

func (c *Counts) add(d Counts) {
	c.Succeeded += d.Succeeded
	c.Failed += d.Failed
	c.Conflicts += d.Conflicts
	c.Hasty += d.Hasty
	c.Retried += d.Retried
}

// Row has the counts of one kind of operation of one workload.
type Row struct {
	Kind, Workload string
	Calm, Storm    Counts
	// Reasons has the numbers of operations that failed in calm, by reason.
	Reasons map[string]int
}

// Record counts an operation that has just ended. why is a short name of its error. first is true
// if the operation broke a promise and is the first such operation of its workload, kind and
// reason.
func (t *Tally) Record(o Operation, calm bool, why string) (first bool) {
	how := judge(o, time.Since(o.Began))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.rows == nil {
		t.mu.rows = make(map[name]*Row)
	}
	r := t.mu.rows[name{o.Kind, o.Workload}]
	if r == nil {
		r = &Row{Kind: o.Kind, Workload: o.Workload, Reasons: make(map[string]int)}
		t.mu.rows[name{o.Kind, o.Workload}] = r
	}
	counts := &r.Storm
	if calm {
		counts = &r.Calm
	}
	counts.Retried += max(0, o.Attempts-1)
	switch how {
	case succeeded:
		counts.Succeeded++
	case conflicted:
		counts.Conflicts++
	case hasty:
		counts.Hasty++
	case failed:
		counts.Failed++
		if calm {
			if _, known := r.Reasons[why]; !known && len(r.Reasons) >= maxReasons {
				why = "others"
			}
			r.Reasons[why]++
			return r.Reasons[why] == 1
		}
	}
	return false
}

// Rows returns all rows, by kind and workload.
func (t *Tally) Rows() []Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rows []Row
	for _, r := range t.mu.rows {
		c := *r
		c.Reasons = make(map[string]int, len(r.Reasons))
		for why, n := range r.Reasons {
			c.Reasons[why] = n
		}
		rows = append(rows, c)
	}
	sortRows(rows)
	return rows
}

func sortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Workload, b.Workload))
	})
}

// Verdict returns complaints about a whole run: the operations, of a workload or of all workloads
// together, that succeeded too rarely in calm, or never. Record reports the single operations that
// failed in calm.
func Verdict(rows []Row) (complaints []string) {
	for _, r := range append(slices.Clone(rows), ByKind(rows)...) {
		what := r.Kind
		if r.Workload != "" {
			what += " of " + r.Workload
		}
		judged := r.Calm.Succeeded + r.Calm.Failed
		if float64(r.Calm.Succeeded) < leastRate*float64(judged) {
			complaints = append(complaints,
				fmt.Sprintf("%s succeeded %d of %d times in calm, which is less than %.0f %%: %s",
					what,
					r.Calm.Succeeded, judged, 100*leastRate, reasons(r.Reasons)))
		}
		begun := r.Calm.begun() + r.Storm.begun()
		if r.Calm.Succeeded+r.Storm.Succeeded == 0 && begun >= leastBegun {
			complaints = append(complaints,
				fmt.Sprintf("%s never succeeded, and was begun %d times", what, begun))
		}
	}
	return complaints
}

// ByKind adds up the rows of all workloads.
func ByKind(rows []Row) []Row {
	return sum(rows, func(r Row) name { return name{kind: r.Kind} })
}

// Merge adds up the rows of two runs.
func Merge(a, b []Row) []Row {
	return sum(slices.Concat(a, b), func(r Row) name { return name{r.Kind, r.Workload} })
}

// sum adds up the rows for which of returns the same name.
func sum(rows []Row, of func(Row) name) (sums []Row) {
	by := make(map[name]*Row)
	for _, r := range rows {
		n := of(r)
		if by[n] == nil {
			by[n] = &Row{Kind: n.kind, Workload: n.workload, Reasons: make(map[string]int)}
		}
		by[n].Calm.add(r.Calm)
		by[n].Storm.add(r.Storm)
		for why, times := range r.Reasons {
			by[n].Reasons[why] += times
		}
	}
	for _, r := range by {
		sums = append(sums, *r)
	}
	sortRows(sums)
	return sums
}

package calm

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// leastRate is how often operations of a kind succeed in calm.
	leastRate = 0.99
	// leastBegun is of how many operations of a kind one must have succeeded. With fewer in a run
	// it may have been chance: all in one storm.
	leastBegun = 20
	// maxReasons is how many errors are told apart for each row; what comes more is counted as
	// others.
	maxReasons = 16
)

// Tally counts operations by how they ended. The zero Tally is empty. Its methods may be called
// from any goroutine.
type Tally struct {
	mu struct {
		sync.Mutex
		rows map[name]*Row
	}
}

// name is that of a row: there are as many as workloads have kinds of operations.
type name struct{ kind, workload string }

// Counts are operations by how they ended.
type Counts struct {
	Succeeded, Failed int
	// Conflicts are errors that the API promises; Hasty operations had too little time.
	Conflicts, Hasty int
	// Retried is how many attempts were followed by another one, in whatever operations.
	Retried int
}

// begun is how many operations these are.
func (c Counts) begun() int { return c.Succeeded + c.Failed + c.Conflicts + c.Hasty }

func (c *Counts) add(d Counts) {
	c.Succeeded += d.Succeeded
	c.Failed += d.Failed
	c.Conflicts += d.Conflicts
	c.Hasty += d.Hasty
	c.Retried += d.Retried
}

// Row is what is known of one kind of operation of one workload.
type Row struct {
	Kind, Workload string
	Calm, Storm    Counts
	// Reasons is how often operations failed in calm, by why.
	Reasons map[string]int
}

// Record counts an operation that has ended now. why is a short name of its error. first says that
// it broke a promise, and is the first of this workload, kind and reason that did.
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

// Rows are all rows, by kind and workload.
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

// Verdict is what is wrong with a whole run: which operations, of a workload or of all together,
// succeeded too rarely in calm, or never. That single ones failed in calm is told by Record.
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

// sum adds up the rows that get one name.
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

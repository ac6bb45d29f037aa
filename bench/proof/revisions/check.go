package revisions

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Report is what Check found.
type Report struct {
	Operations int
	// Unknown is the number of operations of unknown outcome. Unseen is the number of these
	// operations whose effect no client saw. Serializable is the number of reads without a quorum.
	Unknown, Unseen, Serializable int
	// Complaints has answers that no single copy can have given.
	Complaints []string
	// Undecided: the time did not suffice to find an order, or to prove that there is none.
	Undecided bool
}

// Check decides whether the operations can be the operations of a store with revisions. All their
// keys must be absent at the beginning, and no other client may write them. Check spends about
// patience at most on the search for an order. If there is no order, it spends about patience at
// most on each of several searches for the first wrong answer.
func Check(operations []Operation, patience time.Duration) Report {
	report := Report{Operations: len(operations)}
	report.Complaints = resolve(operations)
	for i := range operations {
		o := &operations[i]
		if o.Serializable {
			report.Serializable++
		}
		if o.Outcome == Unknown {
			report.Unknown++
			if o.at == 0 && !o.reads() {
				report.Unseen++
			}
		}
	}
	report.Complaints = append(report.Complaints, checkSerializable(operations)...)
	switch search(operations, patience) {
	case porcupine.Illegal:
		report.Complaints = append(report.Complaints, explain(operations, patience))
	case porcupine.Unknown:
		report.Undecided = true
	}
	return report
}

var store = porcupine.Model{
	Init: func() any { return &state{} },
	Step: func(s, input, _ any) (bool, any) {
		ok, next := s.(*state).step(input.(*Operation))
		return ok, next
	},
	Equal: func(a, b any) bool { return a.(*state).equal(b.(*state)) },
	Hash:  func(s any) uint64 { return s.(*state).hash() },
}

// search looks for an order that explains all answers.
func search(operations []Operation, patience time.Duration) porcupine.CheckResult {
	var all []porcupine.Operation
	for i := range operations {
		o := &operations[i]
		// These operations have no effect: refused operations, and reads without an answer.
		if o.Outcome == Refused || o.Serializable || o.Outcome == Unknown && o.reads() {
			continue
		}
		end := o.Return
		if o.Outcome == Unknown {
			end = math.MaxInt64
		}
		all = append(all, porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Call,
			Return: end})
	}
	return porcupine.CheckOperationsTimeout(store, all, patience)
}

// shown is the number of operations of a failing history that are listed: the last ones.
const shown = 30

// explain describes the shortest prefix of the history that has no order. It finds the prefix by
// bisection.
func explain(operations []Operation, patience time.Duration) string {
	var ends []int64
	for _, o := range operations {
		if o.Return != 0 && !o.Serializable {
			ends = append(ends, o.Return)
		}
	}
	slices.Sort(ends)
	n := sort.Search(len(ends), func(i int) bool {
		return search(until(operations, ends[i]), patience) == porcupine.Illegal
	})
	end := ends[min(n, len(ends)-1)]
	prefix := until(operations, end)
	slices.SortFunc(prefix, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	prefix = slices.DeleteFunc(prefix, func(o Operation) bool {
		return o.Serializable || o.Outcome == Refused
	})
	var b strings.Builder
	b.WriteString("no order of these operations explains the answer that ended last:")
	for i := max(0, len(prefix)-shown); i < len(prefix); i++ {
		mark := "   "
		if prefix[i].Return == end {
			mark = "=> "
		}
		fmt.Fprintf(&b, "\n  %s%v", mark, &prefix[i])
	}
	return b.String()
}

// until returns the history as it was known at one moment.
func until(operations []Operation, end int64) []Operation {
	var prefix []Operation
	for _, o := range operations {
		if o.Call > end {
			continue
		}
		if o.Return > end {
			if o.Outcome == Done && !o.reads() {
				o.at = 0 // the operation may not have taken effect by then
			}
			o.Outcome, o.Return, o.Ended, o.Found = Unknown, 0, 0, nil
		}
		prefix = append(prefix, o)
	}
	for i := range prefix {
		if prefix[i].Outcome == Unknown {
			prefix[i].at = 0
		}
	}
	resolve(prefix)
	return prefix
}

// String returns one line, and the complaints.
func (r Report) String() string {
	text := fmt.Sprintf("%d operations (%d not told, of %d no trace; %d serializable): ",
		r.Operations, r.Unknown, r.Unseen, r.Serializable)
	switch {
	case len(r.Complaints) > 0:
		return text + strings.Join(r.Complaints, "\n")
	case r.Undecided:
		return text + "undecided"
	}
	return text + "linearizable"
}

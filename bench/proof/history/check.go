package history

import (
	"cmp"
	"errors"
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
	Keys       int
	Operations int
	// Unknown is how many of the operations have an unknown outcome, Refused how many had no
	// effect.
	Unknown, Refused int
	// Failures are the keys whose history no single copy can have produced.
	Failures []Failure
	// Undecided are the keys for which the time did not suffice.
	Undecided []string
}

// Failure is one key with an impossible history.
type Failure struct {
	Key string
	// Prefix is the shortest beginning of the key's history, by endings, that is impossible
	// already. Its last ending is the answer that cannot be; what had not ended by then has an
	// unknown outcome.
	Prefix []Operation
}

// Check decides for every key whether its operations are linearisable, starting from absence. It
// spends at most about perKey on one key.
func Check(operations []Operation, perKey time.Duration) Report {
	byKey := make(map[string][]Operation)
	report := Report{Operations: len(operations)}
	for _, o := range operations {
		byKey[o.Key] = append(byKey[o.Key], o)
		switch o.Outcome {
		case Unknown:
			report.Unknown++
		case Refused:
			report.Refused++
		}
	}
	report.Keys = len(byKey)
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		switch checkKey(byKey[key], perKey) {
		case porcupine.Illegal:
			report.Failures = append(report.Failures,
				Failure{Key: key, Prefix: shortestFailing(byKey[key], perKey)})
		case porcupine.Unknown:
			report.Undecided = append(report.Undecided, key)
		}
	}
	return report
}

func checkKey(operations []Operation, timeout time.Duration) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(register, porcupineHistory(withoutUnseen(operations)),
		timeout)
}

// shortestFailing finds by bisection how much of a failing history is needed: a beginning of a
// linearisable history is linearisable, so that once a beginning fails all longer ones do.
func shortestFailing(operations []Operation, timeout time.Duration) []Operation {
	var ends []int64
	for _, o := range operations {
		if o.Return != 0 {
			ends = append(ends, o.Return)
		}
	}
	slices.Sort(ends)
	// A beginning that is not decided in time counts as good: the result is then longer than it
	// could be, and still fails.
	n := sort.Search(len(ends), func(i int) bool {
		return checkKey(until(operations, ends[i]), timeout) == porcupine.Illegal
	})
	end := int64(math.MaxInt64)
	if n < len(ends) {
		end = ends[n]
	}
	prefix := until(operations, end)
	slices.SortFunc(prefix, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	return prefix
}

// until is the history as it was known at one moment: later calls are not there, and what ended
// later has not ended.
func until(operations []Operation, end int64) []Operation {
	var prefix []Operation
	for _, o := range operations {
		if o.Call > end {
			continue
		}
		if o.Return > end {
			o.Outcome, o.Return, o.Ended = Unknown, 0, 0
			o.Found, o.Swapped, o.Existed = Absent, false, false
		}
		prefix = append(prefix, o)
	}
	return prefix
}

// Err is nil if every key was decided and is linearisable.
func (r Report) Err() error {
	var failures []error
	for _, f := range r.Failures {
		failures = append(failures, errors.New(f.String()))
	}
	if len(r.Undecided) > 0 {
		failures = append(failures,
			fmt.Errorf("%d keys could not be decided in the time allowed, for example %q: give "+
				"more time, or make histories shorter", len(r.Undecided), r.Undecided[0]))
	}
	return errors.Join(failures...)
}

// String is one line.
func (r Report) String() string {
	verdict := "linearisable"
	if len(r.Failures) > 0 {
		verdict = fmt.Sprintf("NOT linearisable: %d keys", len(r.Failures))
	}
	if len(r.Undecided) > 0 {
		verdict += fmt.Sprintf(", %d keys undecided", len(r.Undecided))
	}
	return fmt.Sprintf("%d operations on %d keys (%d of unknown outcome, %d refused): %s",
		r.Operations, r.Keys, r.Unknown, r.Refused, verdict)
}

// shown is how many operations of a failing prefix String lists; the impossible answer is among the
// last.
const shown = 40

// String is the end of the failing prefix, one operation in a line.
func (f Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "key %q: no order of these operations explains the answer that ended last",
		f.Key)
	start := max(len(f.Prefix)-shown, 0)
	if start > 0 {
		fmt.Fprintf(&b, " (the first %d operations are left out here)", start)
	}
	last := int64(0)
	for _, o := range f.Prefix {
		last = max(last, o.Return)
	}
	for _, o := range f.Prefix[start:] {
		mark := "   "
		if o.Return == last {
			mark = "=> "
		}
		fmt.Fprintf(&b, "\n  %s%v", mark, o)
	}
	return b.String()
}

// WriteHTML draws the failing prefix as a page to look at in a browser.
func (f Failure) WriteHTML(path string) error {
	_, info := porcupine.CheckOperationsVerbose(register, porcupineHistory(withoutUnseen(f.Prefix)),
		time.Minute)
	if err := porcupine.VisualizePath(register, info, path); err != nil {
		return fmt.Errorf("draw the history of key %q: %w", f.Key, err)
	}
	return nil
}

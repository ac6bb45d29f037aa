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
	// Unknown is the number of operations with an unknown outcome. Refused is the number of
	// operations that had no effect.
	Unknown, Refused int
	// Failures has the keys with a history that is not linearisable.
	Failures []Failure
	// Undecided has the keys for which the time did not suffice.
	Undecided []string
}

// Failure is a key with a history that is not linearisable.
type Failure struct {
	Key string
	// Prefix is the shortest prefix of the key's history, by the order of endings, that is not
	// linearisable. The answer that ended last is impossible. Operations that had not ended by then
	// have an unknown outcome.
	Prefix []Operation
}

// Check decides for every key whether its operations are linearisable, if the key is absent at
// first. It spends about perKey on a key at most.
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

// shortestFailing finds the shortest prefix of a failing history that fails, by bisection. Every
// prefix of a linearisable history is linearisable, so if a prefix fails, all longer prefixes fail.
func shortestFailing(operations []Operation, timeout time.Duration) []Operation {
	var ends []int64
	for _, o := range operations {
		if o.Return != 0 {
			ends = append(ends, o.Return)
		}
	}
	slices.Sort(ends)
	// A prefix that is not decided in time counts as linearisable. The result may then be too long,
	// but fails.
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

// until returns the history as it was known at one moment: without later calls, and with an unknown
// outcome for operations that ended later.
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

// Err returns nil if every key was decided and is linearisable.
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

// String returns the report in one line.
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

// shown is the number of operations that String lists of a failing prefix: the last ones, because
// the impossible answer is the last.
const shown = 40

// String returns the end of the failing prefix, one operation in a line.
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

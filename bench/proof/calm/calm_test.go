package calm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

func TestWeather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Weather
		if !w.Calm(time.Now()) {
			t.Error("it is not calm before any fault")
		}
		began := time.Now()
		time.Sleep(time.Second)
		w.Begin()
		if w.Calm(time.Now()) || w.Calm(began) {
			t.Error("it is calm while a fault is active")
		}
		if _, ok := w.Clears(); ok {
			t.Error("it clears while a fault is active")
		}
		w.Begin()
		w.End(10 * time.Second)
		if w.Calm(time.Now()) {
			t.Error("it is calm while one of two faults is active")
		}
		time.Sleep(4 * time.Second)
		w.End(2 * time.Second) // lasts for less time than the other fault
		if since, ok := w.Clears(); !ok || time.Until(since) != 6*time.Second {
			t.Errorf("it clears in %v", time.Until(since))
		}
		inside := time.Now().Add(5 * time.Second)
		time.Sleep(6 * time.Second)
		if w.Calm(began) || w.Calm(inside) || !w.Calm(time.Now()) {
			t.Error("what began in the storm counts as calm, or what begins after it does not")
		}
		whole := time.Now()
		time.Sleep(time.Second)
		w.Begin()
		w.End(0) // affects only operations under way
		if w.Calm(whole) {
			t.Error("a storm of a moment is forgotten")
		}
	})
}

// TestWeatherLooks checks that a fault which no injector caused is noticed at the latest when it
// matters.
func TestWeatherLooks(t *testing.T) {
	var w Weather
	w.Look = func() { w.Begin() }
	if w.Calm(time.Now()) {
		t.Error("Look was not called")
	}
}

func TestSettling(t *testing.T) {
	for _, test := range []struct {
		kind           Kind
		election, want time.Duration
	}{
		{Links, 100 * time.Millisecond, 3 * time.Second}, {Links, time.Second, 6 * time.Second},
		{Restarts, time.Second, 7 * time.Second},
		{Replacements, time.Second, 16 * time.Second}, {Clocks, time.Second, 36 * time.Second},
		{Room, time.Second, 7 * time.Second},
	} {
		if got := Settling(test.kind, test.election); got != test.want {
			t.Errorf("a fault of kind %d is felt for %v, want %v", test.kind, got, test.want)
		}
	}
}

func TestJudge(t *testing.T) {
	is := func(kinds ...error) error {
		return errors.Join(append(kinds, errors.New("some more"))...)
	}
	for name, test := range map[string]struct {
		operation Operation
		took      time.Duration
		want      end
	}{
		"success": {Operation{}, time.Hour, succeeded},
		"absence": {Operation{Err: is(kv.ErrNotFound)}, 0, succeeded},
		"failure": {Operation{Err: is(kv.ErrUnavailable)}, 0, failed},
		"at the deadline": {Operation{Err: is(context.DeadlineExceeded), Patience: Enough},
			Enough, failed},
		"in haste": {Operation{Err: is(context.DeadlineExceeded),
			Patience: Enough / 2}, Enough / 2, hasty},
		"told in time": {Operation{Err: is(kv.ErrConflict), Patience: Enough / 2},
			Enough * 9 / 20, hasty},
		"too soon for haste": {Operation{Err: is(kv.ErrUnavailable), Patience: Enough / 2},
			Enough / 4, failed},
		"starved": {Operation{Err: is(kv.ErrConflict, context.DeadlineExceeded),
			Patience: time.Minute}, time.Minute, failed},
		"conflict of a part": {Operation{Err: is(kv.ErrConflict), Part: true}, 0, conflicted},
		"wounded": {Operation{Err: is(kv.ErrTransactionAborted, kv.ErrWounded),
			Part: true}, 0, conflicted},
		"too old": {Operation{Err: is(kv.ErrTransactionTooOld), Part: true}, 0,
			failed},
		"unknown of a part": {Operation{Err: is(kv.ErrOutcomeUnknown, kv.ErrConflict),
			Part: true}, 0, failed},
		"conflict of an entire": {Operation{Err: is(kv.ErrConflict)}, 0, failed},
	} {
		if got := judge(test.operation, test.took); got != test.want {
			t.Errorf("%s: judged as %d, want %d", name, got, test.want)
		}
	}
}

// record counts operations of a kind by their errors. It returns how many of them broke a promise
// for the first time.
func record(t *Tally, calm bool, times int, err error) (first int) {
	for range times {
		if t.Record(Operation{Kind: "scan", Workload: "w", Attempts: 2, Err: err}, calm,
			fmt.Sprint(err)) {
			first++
		}
	}
	return first
}

// Two scans of a hundred fail in calm. The first failure is reported at once, and the run fails
// because of both.
func TestFailuresInCalm(t *testing.T) {
	var tally Tally
	if n := record(&tally, true, 98, nil) + record(&tally, true, 2, kv.ErrUnavailable); n != 1 {
		t.Errorf("%d complaints, want one", n)
	}
	complaints := Verdict(tally.Rows())
	if len(complaints) != 2 || !strings.Contains(complaints[0],
		"scan of w succeeded 98 of 100 times in calm") ||
		!strings.Contains(complaints[0], "2 times unavailable") || !strings.HasPrefix(complaints[1],
		"scan succeeded") {
		t.Errorf("the verdict is %q", complaints)
	}
}

func TestFailuresInStormAreNone(t *testing.T) {
	var tally Tally
	if n := record(&tally, false, 1000, kv.ErrUnavailable) + record(&tally, false, 1, nil) +
		record(&tally, true, 1, nil); n != 0 {
		t.Errorf("%d complaints", n)
	}
	if complaints := Verdict(tally.Rows()); len(complaints) != 0 {
		t.Errorf("the verdict is %q", complaints)
	}
	want := Row{Kind: "scan", Workload: "w", Calm: Counts{Succeeded: 1, Retried: 1},
		Storm: Counts{Succeeded: 1, Failed: 1000, Retried: 1001}}
	if rows := tally.Rows(); len(rows) != 1 || rows[0].Calm != want.Calm ||
		rows[0].Storm != want.Storm {
		t.Errorf("rows %+v", rows)
	}
}

func TestNeverSucceeded(t *testing.T) {
	for begun, want := range map[int]int{leastBegun - 1: 0, leastBegun: 2} {
		var tally Tally
		record(&tally, false, begun, kv.ErrUnavailable)
		if complaints := Verdict(tally.Rows()); len(complaints) != want || want > 0 &&
			!strings.Contains(complaints[0], "never succeeded") {
			t.Errorf("of %d failures in storm the verdict is %q", begun, complaints)
		}
	}
}

func TestReasonsAreBounded(t *testing.T) {
	var tally Tally
	for i := range 10 * maxReasons {
		record(&tally, true, 1, fmt.Errorf("reason %d", i))
	}
	if n := len(tally.Rows()[0].Reasons); n != maxReasons+1 {
		t.Errorf("%d reasons are told apart", n)
	}
}

func TestTable(t *testing.T) {
	var tally Tally
	record(&tally, true, 3, nil)
	record(&tally, false, 4, kv.ErrUnavailable)
	record(&tally, true, 5, kv.ErrUnavailable)
	rows := tally.Rows()
	if merged := Merge(rows, rows); merged[0].Calm.Succeeded != 6 ||
		merged[0].Reasons["unavailable"] != 10 || rows[0].Calm.Succeeded != 3 {
		t.Errorf("twice %+v is %+v", rows, merged)
	}
	text := Table(rows)
	if !strings.Contains(text, "5 times unavailable") {
		t.Error("the table does not say why operations failed")
	}
	var numbers []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "scan  ") {
			numbers = strings.Fields(strings.ReplaceAll(line, "|", " "))
		}
		if len(line) > 121 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	if got := strings.Join(numbers, " "); got != "scan 3 5 0 0 8 0 4 0 0 4" {
		t.Errorf("the row is %q of\n%s", got, text)
	}
}

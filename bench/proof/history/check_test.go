package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// at returns an operation with times. end 0: the operation did not return.
func at(call, end int64, o Operation) Operation {
	o.Call, o.Return = call, end
	if o.Key == "" {
		o.Key = "k"
	}
	return o
}

func get(found State) Operation { return Operation{Kind: Get, Outcome: Done, Found: found} }
func put(value string) Operation {
	return Operation{Kind: Put, Outcome: Done, New: Value(value)}
}
func remove(existed bool) Operation {
	return Operation{Kind: Delete, Outcome: Done,
		Existed: existed}
}
func swapped(from, to State) Operation {
	return Operation{Kind: CompareAndSwap, Outcome: Done, Expected: from, New: to, Swapped: true}
}
func notSwapped(from, to, found State) Operation {
	return Operation{Kind: CompareAndSwap, Outcome: Done, Expected: from, New: to, Found: found}
}
func unknown(o Operation) Operation {
	o.Outcome, o.Found, o.Swapped, o.Existed = Unknown, Absent, false, false
	return o
}
func refused(o Operation) Operation {
	o = unknown(o)
	o.Outcome = Refused
	return o
}

var (
	a = Value("a")
	b = Value("b")
	c = Value("c")
)

func TestHandWrittenHistories(t *testing.T) {
	for _, test := range []struct {
		name string
		good bool
		ops  []Operation
	}{
		{"nothing happened", true, nil},
		{"a fresh key is absent", true, []Operation{at(1, 2, get(Absent))}},
		{"a value from nowhere", false, []Operation{at(1, 2, get(a))}},
		{"a put is seen", true, []Operation{at(1, 2, put("a")), at(3, 4, get(a))}},
		{"an acknowledged put is lost", false, []Operation{at(1, 2, put("a")),
			at(3, 4, get(Absent))}},
		{"a stale read", false, []Operation{at(1, 2, put("a")), at(3, 4, put("b")),
			at(5, 6, get(a))}},
		{"a read beside a put sees either", true, []Operation{at(1, 2, put("a")),
			at(3, 8, put("b")), at(4, 5, get(a)), at(6, 7, get(b))}},
		{"two reads beside a put go back in time", false, []Operation{at(1, 2, put("a")),
			at(3, 8, put("b")), at(4, 5, get(b)), at(6, 7, get(a))}},
		{"a put is applied twice", false, []Operation{at(1, 2, put("a")), at(3, 4, put("b")),
			at(5, 6, get(b)), at(7, 8, get(a))}},
		{"a deleted key is gone", true, []Operation{at(1, 2, put("a")), at(3, 4, remove(true)),
			at(5, 6, get(Absent)), at(7, 8, remove(false))}},
		{"a delete found what was not there", false, []Operation{at(1, 2, remove(true))}},
		{"a deleted value comes back", false, []Operation{at(1, 2, put("a")),
			at(3, 4, remove(true)), at(5, 6, get(a))}},

		{"compare-and-swap from absence", true, []Operation{at(1, 2, swapped(Absent, a)),
			at(3, 4, get(a))}},
		{"two swaps from the same value", false, []Operation{at(1, 2, put("a")),
			at(3, 6, swapped(a, b)), at(4, 5, swapped(a, c))}},
		{"a swap that did not find its value", true, []Operation{at(1, 2, put("a")),
			at(3, 4, notSwapped(b, c, a)), at(5, 6, get(a))}},
		{"a swap refused though its value was there", false, []Operation{at(1, 2, put("a")),
			at(3, 4, notSwapped(a, c, a))}},
		{"a swap reports something else than is there", false, []Operation{at(1, 2, put("a")),
			at(3, 4, notSwapped(b, c, Absent))}},
		{"a swap to absence", true, []Operation{at(1, 2, put("a")), at(3, 4, swapped(a, Absent)),
			at(5, 6, get(Absent))}},

		{"an unknown put took effect", true, []Operation{at(1, 2, unknown(put("a"))),
			at(3, 4, get(a))}},
		{"an unknown put never took effect", true, []Operation{at(1, 2, unknown(put("a"))),
			at(3, 4, get(Absent))}},
		{"an unknown put took effect late", true, []Operation{at(1, 2, unknown(put("a"))),
			at(3, 4, put("b")), at(5, 6, get(b)), at(7, 8, get(a))}},
		{"an unknown put took effect twice", false, []Operation{
			at(1, 2, unknown(put("a"))), at(3, 4, get(a)), at(5, 6, put("b")), at(7, 8, get(a)),
		}},
		{"an unknown put was undone", false, []Operation{at(1, 2, unknown(put("a"))),
			at(3, 4, get(a)), at(5, 6, get(Absent))}},
		{"an unknown swap explains the next", true, []Operation{at(1, 2, put("a")),
			at(3, 0, unknown(swapped(a, b))), at(4, 5, swapped(b, c))}},
		{"an unknown swap that cannot have happened", false, []Operation{at(1, 2, put("a")),
			at(3, 0, unknown(swapped(b, c))), at(4, 5, get(c))}},
		{"an unseen unknown put explains a delete", true, []Operation{at(1, 2, unknown(put("a"))),
			at(3, 4, remove(true))}},
		{"a read without an answer says nothing", true, []Operation{at(1, 2, put("a")),
			at(3, 4, unknown(get(b)))}},

		{"a swap reports a value of before", false, []Operation{at(1, 2, put("a")),
			at(3, 4, put("b")), at(5, 6, notSwapped(c, a, a))}},
		{"a delete did not find what was there", false, []Operation{at(1, 2, put("a")),
			at(3, 4, remove(false))}},
		{"an increment is lost", false, []Operation{at(1, 2, put("a")), at(3, 5, swapped(a, b)),
			at(4, 6, swapped(a, b))}},
		{"an increment is lost behind an unknown one", false, []Operation{
			at(1, 2, put("a")), at(3, 0, unknown(swapped(a, b))), at(4, 5, swapped(a, b)),
			at(6, 7, swapped(a, c)),
		}},
		{"a put is lost under a swap from before it", false, []Operation{at(1, 2, put("a")),
			at(3, 4, put("b")), at(5, 6, swapped(a, c))}},

		{"an unknown put is seen before it was called", false, []Operation{at(1, 2, get(a)),
			at(3, 0, unknown(put("a")))}},
		{"an unknown put is seen while it runs", true, []Operation{at(1, 0, unknown(put("a"))),
			at(2, 3, get(Absent)), at(4, 5, get(a)), at(6, 7, get(a))}},
		{"an unknown put comes between two reads, and goes", false, []Operation{
			at(1, 2, put("a")), at(3, 4, unknown(put("b"))), at(5, 6, get(b)), at(7, 8, get(a)),
		}},
		{"an unknown delete took effect late", true, []Operation{
			at(1, 2, put("a")), at(3, 4, unknown(remove(true))), at(5, 6, get(a)),
			at(7, 8, get(Absent)),
		}},
		{"an unknown delete never took effect", true, []Operation{at(1, 2, put("a")),
			at(3, 4, unknown(remove(true))), at(5, 6, get(a))}},
		{"an unknown delete took effect twice", false, []Operation{
			at(1, 2, put("a")), at(3, 4, unknown(remove(true))), at(5, 6, get(Absent)),
			at(7, 8, put("b")), at(9, 10, get(Absent)),
		}},
		{"an unknown swap took effect late", true, []Operation{at(1, 2, put("a")),
			at(3, 4, unknown(swapped(a, b))), at(5, 6, get(a)), at(7, 8, get(b))}},
		{"an unknown swap came too late", false, []Operation{
			at(1, 2, put("a")), at(3, 4, unknown(swapped(a, b))), at(5, 6, put("c")),
			at(7, 8, get(c)), at(9, 10, get(b)),
		}},

		{"a refused put has no effect", false, []Operation{at(1, 2, refused(put("a"))),
			at(3, 4, get(a))}},
		{"a refused put comes back late", false, []Operation{
			at(1, 2, refused(put("a"))), at(3, 4, put("b")), at(5, 6, get(b)), at(7, 8, get(a)),
		}},
		{"a refused delete has no effect", false, []Operation{at(1, 2, put("a")),
			at(3, 4, refused(remove(true))), at(5, 6, get(Absent))}},
		{"a refused swap has no effect", false, []Operation{at(1, 2, put("a")),
			at(3, 4, refused(swapped(a, b))), at(5, 6, get(b))}},
		{"a refused swap is no excuse for a refusal", false, []Operation{
			at(1, 2, put("a")), at(3, 4, refused(swapped(a, b))), at(5, 6, notSwapped(a, c, b)),
		}},
		{"a refused put beside an unknown one of the same value", true, []Operation{
			at(1, 2, refused(put("a"))), at(3, 4, unknown(put("a"))), at(5, 6, get(a)),
		}},
		{"a refused put is not missed", true, []Operation{at(1, 2, refused(put("a"))),
			at(3, 4, get(Absent))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := Check(test.ops, patience)
			if good := report.Err() == nil; good != test.good {
				t.Errorf("linearisable: %v, want %v\n%v", good, test.good, report.Err())
			}
			if naive := linearisable(test.ops); naive != test.good {
				t.Errorf("the naive checker says %v", naive)
			}
		})
	}
}

func TestKeysAreIndependent(t *testing.T) {
	other := func(o Operation) Operation { o.Key = "other"; return o }
	report := Check([]Operation{
		at(1, 2, put("a")), at(3, 4, get(a)), at(5, 6, other(put("b"))),
		at(7, 8, other(get(Absent))), at(9, 10, unknown(put("z"))),
		at(11, 12, refused(put("y"))),
	}, patience)
	if report.Keys != 2 || report.Operations != 6 || report.Unknown != 1 || report.Refused != 1 {
		t.Errorf("report %+v", report)
	}
	if len(report.Failures) != 1 || report.Failures[0].Key != "other" {
		t.Fatalf("failures %+v, want one of key other", report.Failures)
	}
	if got := report.String(); !strings.Contains(got, "NOT linearisable: 1 keys") {
		t.Errorf("report %q", got)
	}
}

func TestShortestFailingPrefix(t *testing.T) {
	history := []Operation{
		at(1, 2, put("a")),
		at(3, 30, put("b")), // still running when the impossible answer comes
		at(4, 5, get(b)),
		at(6, 7, get(a)), // impossible: b was read already
		at(8, 9, get(c)), // also impossible, but later
		at(31, 32, get(a)),
	}
	report := Check(history, patience)
	if len(report.Failures) != 1 {
		t.Fatalf("failures %+v, want one", report.Failures)
	}
	prefix := report.Failures[0].Prefix
	if len(prefix) != 4 {
		t.Fatalf("the prefix has %d operations, want 4:\n%v", len(prefix), report.Failures[0])
	}
	if prefix[1].Return != 0 || prefix[1].Outcome != Unknown {
		t.Errorf("the put that had not ended is %v", prefix[1])
	}
	if text := report.Failures[0].String(); !strings.Contains(text,
		`=> [6 to 7, 0s to 0s] client 0: get k: "a"`) {
		t.Errorf("the impossible answer is not marked:\n%s", text)
	}
	path := filepath.Join(t.TempDir(), "failure.html")
	if err := report.Failures[0].WriteHTML(path); err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(path); err != nil || len(page) == 0 {
		t.Errorf("the page has %d bytes: %v", len(page), err)
	}
}

// linearisable tries the definition: some order of the operations, without some of the unknown
// writes, agrees with the answers and with real time.
func linearisable(operations []Operation) bool {
	var rest []Operation
	for _, o := range operations {
		if o.Outcome != Refused && !(o.Outcome == Unknown && o.Kind == Get) {
			rest = append(rest, o)
		}
	}
	return tryOrders(Absent, rest)
}

func tryOrders(state State, rest []Operation) bool {
	if len(rest) == 0 {
		return true
	}
	for i, next := range rest {
		first := true
		for j, o := range rest {
			// An unknown operation never ends, so nothing has to come after it.
			if i != j && o.Outcome == Done && o.Return < next.Call {
				first = false
			}
		}
		if !first {
			continue
		}
		others := append(append([]Operation(nil), rest[:i]...), rest[i+1:]...)
		if next.Outcome == Unknown && tryOrders(state, others) {
			return true
		}
		if after, legal := apply(state, next); legal && tryOrders(after, others) {
			return true
		}
	}
	return false
}

// apply applies an operation to a register. It repeats the model in another form: by the meaning of
// each answer.
func apply(state State, o Operation) (after State, legal bool) {
	switch {
	case o.Kind == Get:
		return state, o.Found == state
	case o.Kind == Put:
		return o.New, true
	case o.Kind == Delete:
		return Absent, o.Outcome == Unknown || o.Existed == state.Present
	case o.Outcome == Unknown && state != o.Expected:
		return state, true
	case o.Outcome == Unknown || o.Swapped:
		return o.New, state == o.Expected
	default:
		return state, state != o.Expected && state == o.Found
	}
}

// drawHistory makes a history of a few operations on one key, with answers that are often right.
// They come from a register that executes each operation at its beginning or its end, and sometimes
// loses or confuses something.
func drawHistory(t *rapid.T) []Operation {
	var (
		state State
		clock int64
		ops   []Operation
		open  []int
	)
	values := rapid.SampledFrom([]State{Absent, a, b, c})
	answer := func(o *Operation) {
		switch o.Kind {
		case Get:
			o.Found = state
		case Put:
			state = o.New
		case Delete:
			o.Existed, state = state.Present, Absent
		case CompareAndSwap:
			if o.Swapped = state == o.Expected; o.Swapped {
				state = o.New
			} else {
				o.Found = state
			}
		}
	}
	for range rapid.IntRange(1, 12).Draw(t, "events") {
		clock++
		if len(open) > 0 && (len(ops) >= 6 || rapid.Bool().Draw(t, "end")) {
			i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
			o := &ops[open[i]]
			open = append(open[:i], open[i+1:]...)
			o.Return = clock
			switch rapid.IntRange(0, 9).Draw(t, "outcome") {
			case 0:
				continue
			case 1:
				if !o.Swapped && o.Kind != Get {
					o.Outcome = Refused // may be wrong: the operation may have taken effect
				}
				continue
			case 2:
				o.Outcome = Done
				switch {
				case o.Kind == Get || (o.Kind == CompareAndSwap && !o.Swapped):
					o.Found = values.Draw(t, "wrong answer")
				case o.Kind == Delete:
					o.Existed = !o.Existed
				}
				continue
			}
			o.Outcome = Done
			if o.Call%2 == 0 {
				answer(o)
			}
			continue
		}
		if len(ops) >= 6 {
			continue
		}
		o := Operation{
			Key: "k", Client: len(ops), Call: clock,
			Kind:     rapid.SampledFrom([]Kind{Get, Put, Delete, CompareAndSwap}).Draw(t, "kind"),
			Expected: values.Draw(t, "expected"), New: values.Draw(t, "new"),
		}
		if o.Kind == Put {
			o.New = rapid.SampledFrom([]State{a, b, c}).Draw(t, "value")
		}
		if o.Kind == Get || o.Kind == Delete {
			o.Expected, o.New = Absent, Absent
		}
		if clock%2 != 0 {
			answer(&o)
		}
		open = append(open, len(ops))
		ops = append(ops, o)
	}
	for i := range ops {
		if ops[i].Outcome != Done {
			ops[i].Found, ops[i].Swapped, ops[i].Existed = Absent, false, false
		}
	}
	return ops
}

func TestRandomHistoriesAgainstTheDefinition(t *testing.T) {
	var good, bad int
	property := func(t *rapid.T) {
		ops := drawHistory(t)
		want := linearisable(ops)
		report := Check(ops, patience)
		if got := report.Err() == nil; got != want {
			t.Fatalf("linearisable: %v, the definition says %v:\n%v", got, want,
				Failure{Key: "k", Prefix: ops})
		}
		if want {
			good++
			return
		}
		bad++
		prefix := report.Failures[0].Prefix
		if linearisable(prefix) {
			t.Fatalf("the failing prefix is linearisable:\n%v", report.Failures[0])
		}
		last := int64(0)
		for _, o := range prefix {
			last = max(last, o.Return)
		}
		if shorter := until(prefix, last-1); !linearisable(shorter) {
			t.Fatalf("there is a shorter failing prefix:\n%v", Failure{Key: "k", Prefix: shorter})
		}
	}
	for range 20 { // histories that distinguish two mistakes are rare
		rapid.Check(t, property)
	}
	if good == 0 || bad == 0 {
		t.Errorf("%d good and %d bad histories: the test proves little", good, bad)
	}
}

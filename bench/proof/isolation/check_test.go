package isolation

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func mustCheck(t *testing.T, history []Transaction, options Options) Report {
	t.Helper()
	report, err := Check(history, options)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestOneLargeComponent makes every transaction depend on every other one: the first reads a write
// of the last. With almost no steps for the search, a cycle is found nevertheless, and the report
// says that it may be long.
func TestOneLargeComponent(t *testing.T) {
	const length = 20_000
	var history []Transaction
	for i := range length {
		history = append(history, Transaction{Session: i % 7, Begin: time.Duration(2 * i),
			End: time.Duration(2*i + 1), Outcome: Committed, Operations: []Operation{
				{Kind: Read, Key: fmt.Sprint(i), Value: fmt.Sprint((i + length - 1) % length)},
				{Kind: Write, Key: fmt.Sprint((i + 1) % length), Value: fmt.Sprint(i)},
			}})
	}
	for _, steps := range []int{1, 0} {
		report := mustCheck(t, history, Options{Level: Serialisable, Steps: steps})
		if report.Counts[G1c] != 1 || report.Findings[0].Component != length ||
			len(report.Findings[0].Cycle) != length {
			t.Errorf("%d steps: %v", steps, report)
		}
		if text := report.Findings[0].Text; len(text) > 10_000 || !strings.Contains(text,
			"and so on, over 19975 others, back to T0") {
			t.Errorf("%d steps: the explanation has %d bytes", steps, len(text))
		}
		if !report.GaveUp {
			t.Errorf("%d steps: all of it was looked at", steps)
		}
	}
	// With real time the cycle is short: from the last transaction to the first.
	report := mustCheck(t, history, Options{Level: StrictSerialisable})
	if !report.Has(G1c) || report.Err() == nil {
		t.Errorf("%v", report)
	}
}

// TestStaleReadOfLongAgo makes nearly all transactions one component: everything between the write
// and the read that missed it is linked in real time. The report shows only these two.
func TestStaleReadOfLongAgo(t *testing.T) {
	const length = 20_000
	for name, level := range map[Anomaly]Level{GSingle.RealTime(): StrictSerialisable,
		GSingle.Process(): StrongSessionSerialisable} {
		var history []Transaction
		add := func(operations ...Operation) {
			i := len(history)
			history = append(history, Transaction{Session: 1, Begin: time.Duration(2 * i),
				End: time.Duration(2*i + 1), Outcome: Committed, Operations: operations})
			if level == StrictSerialisable {
				history[i].Session = i
			}
		}
		for i := range length {
			add(Operation{Kind: Append, Key: fmt.Sprint(i), Value: "1"})
		}
		add(Operation{Kind: ReadList, Key: "5"})
		report := mustCheck(t, history, Options{Level: level})
		if report.Counts[name] != 1 || len(report.Counts) != 1 ||
			len(report.Findings[0].Cycle) != 2 || report.Findings[0].Component != length-4 ||
			report.GaveUp {
			t.Errorf("%v: %v\n%v", level, report, report.Findings)
		}
	}
}

func TestReport(t *testing.T) {
	var lines strings.Builder
	for i := range 4 {
		fmt.Fprintf(&lines, "a%d s%d [0,10] commit: read x%d [], append y%d 1\n", i, 2*i, i, i)
		fmt.Fprintf(&lines, "b%d s%d [0,10] commit: read y%d [], append x%d 1\n", i, 2*i+1, i, i)
	}
	lines.WriteString("c s20 [0,10] abort: append z 1\nd s21 [0,10] unknown: append z 2\ne s22 " +
		"[0,10] unknown: append z 3\nf s23 [0,10] commit: read z [2]\n")
	history, err := Parse(lines.String())
	if err != nil {
		t.Fatal(err)
	}
	report := mustCheck(t, history, Options{Examples: 3})
	if len(report.Findings) != 3 || report.Counts[G2Item] != 4 || !report.Has(G2Item) ||
		report.Has(G0) {
		t.Errorf("%d findings, counts %v", len(report.Findings), report.Counts)
	}
	const want = "12 transactions (9 committed, 1 aborted, 2 of unknown outcome, of which 1 " +
		"were seen) on 9 keys, 9 dependencies: NOT serialisable: G2-item (4)"
	if report.String() != want {
		t.Errorf("got  %v\nwant %v", report, want)
	}
	if report.Err() == nil {
		t.Fatal("what breaks the level is no error")
	}
	if text := report.Err().Error(); !strings.HasPrefix(text, want) || strings.Count(text,
		"G2-item: a") != 3 {
		t.Errorf("error %s", text)
	}
	report = mustCheck(t, history, Options{Level: SnapshotIsolation})
	if report.Err() != nil || !strings.HasSuffix(report.String(),
		"nothing contradicts snapshot isolation; allowed: G2-item (4)") {
		t.Errorf("%v", report)
	}
	if report := mustCheck(t, history, Options{Level: SnapshotIsolation,
		Forbidden: []Anomaly{G2Item}}); report.Err() == nil {
		t.Error("what was forbidden is allowed")
	}
	if report := mustCheck(t, history, Options{Level: StrictSerialisable,
		Forbidden: []Anomaly{}}); report.Err() != nil {
		t.Error("what was not forbidden is an error")
	}
	if report := mustCheck(t, nil, Options{}); report.Err() != nil {
		t.Error("nothing happened, and it was wrong")
	}
}

func TestRecorder(t *testing.T) {
	var history []Transaction
	synctest.Test(t, func(*testing.T) { // the clock stands still
		r := NewRecorder()
		a := r.Begin(1)
		a.Append("x", "1")
		a.ReadList("x", []string{"1"})
		a.Committed(Timestamp{Wall: 7, Logical: 1})
		b := r.Begin(2)
		b.Write("y", "2")
		b.Read("y", "2")
		b.Unknown()
		c := r.Begin(1)
		c.Write("y", "3")
		c.Aborted()
		d := r.Begin(3)
		d.Snapshot(Timestamp{Wall: 6})
		d.ReadAbsent("y")
		d.Committed(Timestamp{})
		e := r.Begin(4)
		e.Final()
		e.ReadList("x", nil)
		e.Committed(Timestamp{})
		r.Begin(5).Write("y", "4")
		if r.Len() != 6 {
			t.Errorf("%d transactions", r.Len())
		}
		history = r.History()
	})
	const want = `T s1 [1,2] commit ts=7.1: append x 1, read x [1]
T s2 [3,4] unknown: write y 2, read y 2
T s1 [5,6] abort: write y 3
T s3 [7,8] commit snapshot=6.0: read y nil
T s4 [9,10] commit final: read x []
T s5 [11,] unknown: write y 4
`
	if got := text(history); got != want {
		t.Errorf("got\n%s", got)
	}
	report := mustCheck(t, history, Options{Level: StrictSerialisable})
	if !report.Has(GSingle.RealTime()) || !report.Has(LostWrite) {
		t.Errorf("%v", report)
	}
}

// TestRealDatabaseUnderLoad lets many clients use a database that runs one transaction at a time.
func TestRealDatabaseUnderLoad(t *testing.T) {
	const clients, each = 8, 200
	var mu sync.Mutex
	lists := map[string][]string{}
	r := NewRecorder()
	var group sync.WaitGroup
	for client := range clients {
		group.Go(func() {
			for i := range each {
				tx := r.Begin(client)
				key, other := fmt.Sprint("k", (i/10+client)%5), fmt.Sprint("k", i%7)
				value := fmt.Sprintf("%d.%d", client, i)
				tx.Append(key, value)
				mu.Lock()
				found := lists[other]
				if i%9 != 0 {
					lists[key] = append(lists[key][:len(lists[key]):len(lists[key])], value)
				}
				mu.Unlock()
				switch {
				case i%18 == 0:
					tx.Aborted()
				case i%9 == 0:
					tx.Unknown() // the transaction had no effect
				case key == other:
					tx.Committed(Timestamp{})
				default:
					tx.ReadList(other, found)
					tx.Committed(Timestamp{})
				}
			}
		})
	}
	group.Wait()
	final := r.Begin(clients)
	final.Final()
	for key, list := range lists {
		final.ReadList(key, list)
	}
	final.Committed(Timestamp{})
	report := mustCheck(t, r.History(), Options{Level: StrictSerialisable})
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Transactions != clients*each+1 || report.Edges == 0 {
		t.Errorf("%v", report)
	}
}

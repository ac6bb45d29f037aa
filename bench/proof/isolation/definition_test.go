package isolation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// contents has the contents of all keys as lists. A register uses the last element.
type contents map[string][]string

// run applies a transaction to the contents that it sees, and says whether they explain its reads.
func run(t *Transaction, seen contents) (contents, bool) {
	after := contents{}
	for key, list := range seen {
		after[key] = list
	}
	for _, o := range t.Operations {
		list := after[o.Key]
		switch o.Kind {
		case Append, Write:
			after[o.Key] = append(slices.Clone(list), o.Value)
		case ReadList:
			if !slices.Equal(list, o.List) {
				return nil, false
			}
		case Read:
			if o.Absent != (len(list) == 0) || (!o.Absent && list[len(list)-1] != o.Value) {
				return nil, false
			}
		}
	}
	return after, true
}

// mustPrecede says whether a level orders a before b, whatever they read. Sessions do one thing
// after the other, even if the clock stands still. earlier says that a comes first in the history.
func mustPrecede(a, b *Transaction, earlier bool, options Options) bool {
	if a.Outcome != Committed || !b.Snapshot.IsZero() {
		return false
	}
	if options.Level != Serialisable && a.Session == b.Session && earlier {
		return true
	}
	if a.End >= b.Begin {
		return false
	}
	if options.Level == StrictSerialisable {
		return true
	}
	return options.KeyRealTime && slices.ContainsFunc(a.Operations, func(o Operation) bool {
		return slices.ContainsFunc(b.Operations,
			func(p Operation) bool { return o.Key == p.Key && (o.writes() || p.writes()) })
	})
}

// serialisable tries the definition: some order of all committed transactions, and of some
// transactions of unknown outcome, explains all answers.
func serialisable(rest []*Transaction, state contents, options Options) bool {
	if !slices.ContainsFunc(rest, func(t *Transaction) bool { return t.Outcome == Committed }) {
		return true
	}
	for i, next := range rest { // in the order of the history
		waits := false
		for j, t := range rest {
			waits = waits || (i != j && mustPrecede(t, next, j < i, options))
		}
		if waits {
			continue
		}
		after, fits := run(next, state)
		if fits && serialisable(slices.Concat(rest[:i], rest[i+1:]), after, options) {
			return true
		}
	}
	return false
}

// snapshotIsolated tries the definition of generalised snapshot isolation: each transaction has a
// moment at which it begins and one at which it commits; it sees everything that was committed when
// it began; and no two transactions that write the same key overlap.
func snapshotIsolated(waiting []*Transaction, running map[*Transaction]contents,
	stale map[*Transaction][]string, state contents) bool {
	committed := func(t *Transaction) bool { return t.Outcome == Committed }
	if !slices.ContainsFunc(waiting, committed) && len(running) == 0 {
		return true
	}
	for i, next := range waiting {
		if _, fits := run(next, state); !fits {
			continue
		}
		started := map[*Transaction]contents{next: state}
		conflicts := map[*Transaction][]string{}
		for t, seen := range running {
			started[t], conflicts[t] = seen, stale[t]
		}
		if snapshotIsolated(slices.Concat(waiting[:i], waiting[i+1:]), started, conflicts, state) {
			return true
		}
	}
	for t := range running {
		conflict := slices.ContainsFunc(t.Operations,
			func(o Operation) bool { return o.writes() && slices.Contains(stale[t], o.Key) })
		if conflict {
			continue
		}
		after := contents{}
		for key, list := range state {
			after[key] = list
		}
		var written []string
		for _, o := range t.Operations {
			if o.writes() {
				written = append(written, o.Key)
				after[o.Key] = append(slices.Clone(after[o.Key]), o.Value)
			}
		}
		still := map[*Transaction]contents{}
		conflicts := map[*Transaction][]string{}
		for other, seen := range running {
			if other != t {
				still[other], conflicts[other] = seen, slices.Concat(stale[other], written)
			}
		}
		if snapshotIsolated(waiting, still, conflicts, after) {
			return true
		}
	}
	return false
}

func candidates(history []Transaction) []*Transaction {
	var list []*Transaction
	for i := range history {
		if t := &history[i]; t.Outcome == Committed || (t.Outcome == Unknown && t.writes()) {
			list = append(list, t)
		}
	}
	return list
}

// drawHistory runs a few transactions against a store that is often right. Reads may be old, writes
// of aborted transactions may stay, writes of committed transactions may be lost, and nothing is
// isolated.
func drawHistory(t *rapid.T, size int, lists, readFirst bool) []Transaction {
	var (
		history []Transaction
		store   = contents{}
		open    = map[int]int{}
		clock   int
		value   int
	)
	percent := func(name string, n int) bool { return rapid.IntRange(0, 99).Draw(t, name) < n }
	calm := percent("calm", 30)
	look := func(tx *Transaction, key string) Operation {
		var own []string
		for _, o := range tx.Operations {
			if o.writes() && o.Key == key {
				own = append(own, o.Value)
			}
		}
		list := store[key]
		if !calm && percent("old", 15) {
			list = list[:rapid.IntRange(0, len(list)).Draw(t, "length")]
		}
		list = slices.Concat(list, own)
		if lists {
			return Operation{Kind: ReadList, Key: key, List: list}
		}
		if len(list) == 0 {
			return Operation{Kind: Read, Key: key, Absent: true}
		}
		return Operation{Kind: Read, Key: key, Value: list[len(list)-1]}
	}
	for len(history) < size || len(open) > 0 {
		clock += rapid.IntRange(0, 1).Draw(t, "pause")
		session := rapid.IntRange(0, 2).Draw(t, "session")
		i, running := open[session]
		if !running {
			if len(history) >= size {
				for s := range open {
					session, i = min(session, s), open[s]
				}
				session = history[i].Session
			} else {
				open[session] = len(history)
				tx := Transaction{Name: fmt.Sprint("t", len(history)), Session: session,
					Begin: time.Duration(clock)}
				if percent("snapshot", 10) {
					tx.Snapshot = Timestamp{Wall: int64(len(history) + 1)}
				}
				history = append(history, tx)
				continue
			}
		}
		tx := &history[i]
		if len(tx.Operations) < 4 && percent("more", 70) {
			key := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "key")
			if !tx.Snapshot.IsZero() || percent("read", 50) {
				tx.Operations = append(tx.Operations, look(tx, key))
				continue
			}
			if readFirst {
				tx.Operations = append(tx.Operations, look(tx, key))
			}
			value++
			kind := Write
			if lists {
				kind = Append
			}
			tx.Operations = append(tx.Operations, Operation{Kind: kind, Key: key,
				Value: fmt.Sprint(value)})
			continue
		}
		delete(open, session)
		tx.End = time.Duration(clock)
		tx.Outcome = Committed
		stays := true
		if !calm && percent("trouble", 15) {
			tx.Outcome = rapid.SampledFrom([]Outcome{Unknown, Aborted}).Draw(t, "outcome")
			stays = percent("stays", 60) == (tx.Outcome == Unknown)
		}
		for _, o := range tx.Operations {
			if o.writes() && stays {
				store[o.Key] = append(slices.Clone(store[o.Key]), o.Value)
			}
		}
	}
	return history
}

var claims = []Options{
	{Level: Serialisable}, {Level: StrongSessionSerialisable}, {Level: StrictSerialisable},
	{Level: Serialisable, KeyRealTime: true},
	{Level: StrongSessionSerialisable, KeyRealTime: true},
}

func check(t *rapid.T, history []Transaction, options Options) Report {
	report, err := Check(history, options)
	if err != nil {
		t.Fatalf("%v\n%s", err, text(history))
	}
	return report
}

// repeat checks a property more often than by default, because histories that distinguish the
// highest levels are rare.
func repeat(t *testing.T, property func(*rapid.T)) {
	for range 10 {
		rapid.Check(t, property)
	}
}

// TestListsAgainstTheDefinition: for lists the order of versions is known well enough. So the
// checker finds every anomaly, and reports nothing that some order explains.
func TestListsAgainstTheDefinition(t *testing.T) {
	var good, bad [5]int
	repeat(t, func(t *rapid.T) {
		history := drawHistory(t, 6, true, false)
		for i, options := range claims {
			want := serialisable(candidates(history), contents{}, options)
			report := check(t, history, options)
			if got := report.Err() == nil; got != want {
				t.Fatalf("%v, each key in real time %v: holds: %v, by definition: %v\n%s\n%v",
					options.Level, options.KeyRealTime, got, want, text(history), report.Err())
			}
			if want {
				good[i]++
			} else {
				bad[i]++
			}
		}
	})
	for i := range claims {
		if good[i] == 0 || bad[i] == 0 {
			t.Errorf("%d good and %d bad histories: the test proves little", good[i], bad[i])
		}
	}
	t.Logf("good %v, bad %v", good, bad)
}

// TestRegistersAgainstTheDefinition: no order explains an anomaly that the checker reports. If
// every writer reads first, so that the order of versions is known, the checker finds every
// anomaly.
func TestRegistersAgainstTheDefinition(t *testing.T) {
	var good, found, missed int
	repeat(t, func(t *rapid.T) {
		readFirst := rapid.Bool().Draw(t, "read first")
		history := drawHistory(t, 6, false, readFirst)
		for _, options := range claims {
			want := serialisable(candidates(history), contents{}, options)
			report := check(t, history, options)
			holds := report.Err() == nil
			switch {
			case want && !holds:
				t.Fatalf("%v, each key in real time %v: some order explains what was "+
					"reported\n%s\n%v", options.Level, options.KeyRealTime, text(history),
					report.Err())
			case want:
				good++
			case !holds:
				found++
			case readFirst:
				t.Fatalf("%v, each key in real time %v: not found\n%s", options.Level,
					options.KeyRealTime, text(history))
			default:
				missed++
			}
		}
	})
	if good == 0 || found == 0 {
		t.Errorf("%d good and %d bad histories: the test proves little", good, found)
	}
	t.Logf("%d good, %d bad, %d bad ones with too little known", good, found, missed)
}

// TestSnapshotIsolationAgainstTheDefinition: no choice of snapshots explains an anomaly that the
// checker reports. For lists whose elements were all read, the checker finds every anomaly.
func TestSnapshotIsolationAgainstTheDefinition(t *testing.T) {
	var good, found, missed int
	repeat(t, func(t *rapid.T) {
		lists := rapid.Bool().Draw(t, "lists")
		history := drawHistory(t, 4, lists, false)
		want := snapshotIsolated(candidates(history), nil, nil, contents{})
		report := check(t, history, Options{Level: SnapshotIsolation})
		holds := report.Err() == nil
		switch {
		case want && !holds:
			t.Fatalf("some choice of snapshots explains what was reported\n%s\n%v", text(history),
				report.Err())
		case want:
			good++
		case !holds:
			found++
		case lists && allSeen(history):
			t.Fatalf("not found\n%s", text(history))
		default:
			missed++
		}
	})
	if good == 0 || found == 0 {
		t.Errorf("%d good and %d bad histories: the test proves little", good, found)
	}
	t.Logf("%d good, %d bad, %d bad ones with too little known", good, found, missed)
}

// allSeen says whether committed transactions read every append, except appends of aborted
// transactions.
func allSeen(history []Transaction) bool {
	seen := map[string]bool{}
	for _, t := range history {
		for _, o := range t.Operations {
			for _, v := range o.List {
				seen[v] = seen[v] || t.Outcome == Committed
			}
		}
	}
	for _, t := range history {
		for _, o := range t.Operations {
			if t.Outcome != Aborted && o.Kind == Append && !seen[o.Value] {
				return false
			}
		}
	}
	return true
}

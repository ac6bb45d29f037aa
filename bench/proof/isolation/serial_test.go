package isolation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// shape describes serial executions.
type shape struct {
	transactions, clients, keysAtOnce, perKey int
	lists                                     bool
	// trouble is the percentage of transactions that abort, have an unknown outcome, or read the
	// past.
	trouble int
}

// serialExecution runs transactions one after the other on one copy. Each takes effect at some
// moment between its begin and its end. A transaction of unknown outcome may take effect after its
// end, or not at all. Keys are used for a while and then no more, as in a good load.
func serialExecution(seed uint64, s shape) []Transaction {
	const step = 10
	random := rand.New(rand.NewPCG(seed, 2))
	percent := func(n int) bool { return random.IntN(100) < n }
	var (
		history []Transaction
		states  = map[string][][]string{} // all versions of a key
		written = map[string][]int{}      // the times of these versions
		ended   = make([]int, s.clients)
		value   int
	)
	at := func(key string, moment int) []string {
		n, exact := slices.BinarySearch(written[key], moment)
		if exact {
			n++
		}
		if n == 0 {
			return nil
		}
		return states[key][n-1]
	}
	look := func(key string, state []string) Operation {
		if s.lists {
			return Operation{Kind: ReadList, Key: key, List: state}
		}
		if len(state) == 0 {
			return Operation{Kind: Read, Key: key, Absent: true}
		}
		return Operation{Kind: Read, Key: key, Value: state[len(state)-1]}
	}
	for i := 1; i <= s.transactions; i++ {
		now := i * step
		client := random.IntN(s.clients)
		if ended[client] >= now {
			continue // the session is still busy
		}
		t := Transaction{Name: fmt.Sprint("t", i), Session: client, Outcome: Committed}
		begin := ended[client] + 1 + random.IntN(now-ended[client])
		begin = max(begin, now-3*step)
		end := now + random.IntN(s.clients*step)
		moment := now
		if percent(s.trouble) {
			t.Snapshot = Timestamp{Wall: int64(1 + random.IntN(now))}
			moment = int(t.Snapshot.Wall)
		}
		own := map[string][]string{}
		effect := true
		if percent(s.trouble) {
			t.Outcome = []Outcome{Unknown, Aborted}[random.IntN(2)]
			effect = t.Outcome == Unknown && percent(50)
			end = max(begin, end-s.clients*step)
		}
		for range 1 + random.IntN(5) {
			key := fmt.Sprint("k", i/(s.perKey*s.keysAtOnce)*s.keysAtOnce+random.IntN(s.keysAtOnce))
			state, mine := own[key]
			if !mine {
				state = at(key, moment)
			}
			if percent(60) || !t.Snapshot.IsZero() {
				t.Operations = append(t.Operations, look(key, state))
				continue
			}
			value++
			kind := Write
			if s.lists {
				kind = Append
			}
			t.Operations = append(t.Operations, Operation{Kind: kind, Key: key,
				Value: fmt.Sprint(value)})
			own[key] = append(slices.Clip(state), fmt.Sprint(value))
			if !s.lists {
				own[key] = []string{fmt.Sprint(value)}
			}
		}
		if effect {
			for key, state := range own {
				states[key], written[key] = append(states[key], state), append(written[key], now)
			}
		}
		if t.Outcome == Committed && t.Snapshot.IsZero() && percent(80) {
			t.Commit = Timestamp{Wall: int64(now)}
		}
		t.Begin, t.End = time.Duration(begin), time.Duration(end)
		ended[client] = end
		history = append(history, t)
	}
	random.Shuffle(len(history), func(i, j int) { history[i], history[j] = history[j], history[i] })
	return history
}

func checkSerial(t *testing.T, seed uint64, s shape) {
	t.Helper()
	history := serialExecution(seed, s)
	for _, options := range []Options{
		{Level: StrictSerialisable}, {Level: StrictSerialisable, VersionsByTimestamp: true},
		{Level: StrongSessionSerialisable, KeyRealTime: true},
		{Level: Serialisable, VersionsByTimestamp: true}, {Level: SnapshotIsolation},
	} {
		report, err := Check(history, options)
		if err != nil {
			t.Fatalf("seed %d, %+v: %v", seed, s, err)
		}
		if len(report.Findings) > 0 {
			t.Fatalf("seed %d, %+v, options %+v: a serial execution is not clean: %v\n%v", seed, s,
				options, report.Err(), report)
		}
	}
}

func TestSerialExecutionsAreClean(t *testing.T) {
	for seed := range uint64(60) {
		checkSerial(t, seed, shape{
			transactions: 300, clients: 1 + int(seed%9), keysAtOnce: 1 + int(seed%4), perKey: 25,
			lists: seed%2 == 0, trouble: int(seed % 3 * 10),
		})
	}
}

func FuzzSerialExecutionsAreClean(f *testing.F) {
	f.Add(uint64(1), uint16(100), uint8(5), uint8(3), uint8(20), true)
	f.Add(uint64(2), uint16(100), uint8(5), uint8(3), uint8(20), false)
	f.Fuzz(func(t *testing.T, seed uint64, transactions uint16, clients, keys, trouble uint8,
		lists bool) {
		checkSerial(t, seed, shape{
			transactions: int(transactions % 400), clients: 1 + int(clients%20), keysAtOnce: 1 +
				int(keys%6), perKey: 20,
			lists: lists, trouble: int(trouble % 60),
		})
	})
}

// FuzzParse: a history that Parse accepts is printed so that Parse reads the same history again,
// and Check does not panic.
func FuzzParse(f *testing.F) {
	f.Add("t1 s1 [0,10] commit: append x 1, read y [2 3]")
	f.Add("t2 s2 [5,] unknown ts=4.1 final: write z 7, read z 7, read w nil")
	f.Add("\"t 3\" s-1 [1.5us,2h] abort snapshot=3: read \"a b\" \"nil\"")
	f.Fuzz(func(t *testing.T, input string) {
		history, err := Parse(input)
		if err != nil {
			return
		}
		printed := text(history)
		again, err := Parse(printed)
		if err != nil {
			t.Fatalf("%q was printed as %q: %v", input, printed, err)
		}
		if text(again) != printed {
			t.Fatalf("%q was printed as %q, and then as %q", input, printed, text(again))
		}
		for _, options := range []Options{{Level: StrictSerialisable, VersionsByTimestamp: true},
			{Level: SnapshotIsolation, KeyRealTime: true}} {
			if report, err := Check(history, options); err == nil && report.String() == "" {
				t.Fatal("an empty report")
			}
		}
	})
}

// BenchmarkCheck checks about 100,000 transactions: correct ones, and those of very wrong
// databases.
func BenchmarkCheck(b *testing.B) {
	serial := shape{transactions: 147_000, clients: 20, keysAtOnce: 10, perKey: 40, trouble: 2}
	for _, bench := range []struct {
		name    string
		history func() []Transaction
	}{
		{"registers", func() []Transaction { return serialExecution(1, serial) }},
		{"lists", func() []Transaction { serial.lists = true; return serialExecution(1, serial) }},
		{"write skew", func() []Transaction { return simulate(1, snapshots, true, 100_000) }},
		{"read committed", func() []Transaction {
			return simulate(1, readCommitted, true, 100_000)
		}},
		{"stale reads", func() []Transaction { return simulate(1, staleReads, true, 100_000) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			history := bench.history()
			for b.Loop() {
				report, err := Check(history, Options{Level: StrictSerialisable})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(report.Edges), "edges")
				b.ReportMetric(float64(report.Transactions), "transactions")
				found := 0
				for _, n := range report.Counts {
					found += n
				}
				b.ReportMetric(float64(found), "findings")
			}
		})
	}
}

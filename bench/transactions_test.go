package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ledger is a Transactor whose transactions are validated when they commit. Reads and commits take
// their time.
type ledger struct {
	*memory
	// lose is which write it forgets, which a database must not; 0: none. Several could make up for
	// each other.
	lose int
	// doubtful makes every so manieth commit end without an answer.
	doubtful int

	state struct {
		sync.Mutex
		values   map[string][]byte
		versions map[string]int
		writes   int
		tally    Tally
	}
}

var errDoubtful = errors.New("no answer")

func newLedger(latency time.Duration) *ledger {
	l := &ledger{memory: newMemory(latency)}
	l.state.values, l.state.versions = make(map[string][]byte), make(map[string]int)
	l.state.tally = Tally{Commits: make(map[string]uint64), Restarts: make(map[string]uint64)}
	return l
}

type ledgerTx struct {
	*ledger
	read   map[string]int
	writes map[string][]byte
}

func (x *ledgerTx) Get(ctx context.Context, key []byte, _ bool) ([]byte, error) {
	if err := x.called(ctx, "get"); err != nil {
		return nil, err
	}
	x.state.Lock()
	defer x.state.Unlock()
	x.read[string(key)] = x.state.versions[string(key)]
	return x.state.values[string(key)], nil
}

func (x *ledgerTx) Put(key, value []byte) error {
	x.writes[string(key)] = bytes.Clone(value)
	return nil
}

func (l *ledger) Update(ctx context.Context, f func(Tx) error) error {
	for {
		x := &ledgerTx{ledger: l, read: make(map[string]int), writes: make(map[string][]byte)}
		if err := f(x); err != nil {
			return err
		}
		if err := l.called(ctx, "commit"); err != nil {
			return err
		}
		if ok, err := l.commit(x); ok {
			return err
		}
	}
}

// commit says whether the transaction need not run again.
func (l *ledger) commit(x *ledgerTx) (bool, error) {
	l.state.Lock()
	defer l.state.Unlock()
	for key, version := range x.read {
		if l.state.versions[key] != version {
			l.state.tally.Restarts["conflict"]++
			return false, nil
		}
	}
	for key, value := range x.writes {
		l.state.versions[key]++
		l.state.writes++
		if l.state.writes != l.lose {
			l.state.values[key] = value
		}
	}
	l.state.tally.Commits["one"]++
	if l.doubtful > 0 && l.state.tally.Commits["one"]%uint64(l.doubtful) == 0 {
		return true, errDoubtful
	}
	return true, nil
}

func (l *ledger) Snapshot(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if err := l.called(ctx, "snapshot"); err != nil {
		return nil, err
	}
	l.state.Lock()
	defer l.state.Unlock()
	values := make([][]byte, len(keys))
	for i, key := range keys {
		values[i] = l.state.values[string(key)]
	}
	return values, nil
}

func (l *ledger) PartitionOf(_ context.Context, key []byte) (uint64, error) {
	return uint64(key[len(key)-1]) % 4, nil
}

func (l *ledger) Uncertain(err error) bool { return errors.Is(err, errDoubtful) }

func (l *ledger) Tally() Tally {
	l.state.Lock()
	defer l.state.Unlock()
	return l.state.tally.since(Tally{})
}

func TestTransactionsAreCountedAndVerified(t *testing.T) {
	for name, w := range map[string]TransactionWorkload{
		"bank":     &Bank{Accounts: 5, Audits: 0.1, Lock: true},
		"counters": &Counters{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				result, err := RunTransactions(t.Context(), newLedger(time.Millisecond), w,
					Config{Clients: 4, WarmUp: 100 * time.Millisecond, Duration: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				x := result.Transactions
				restarts := x.Restarts["conflict"]
				if result.Total.Count == 0 || result.Total.Errors != 0 || restarts == 0 ||
					x.MostAttempts < 2 || x.Verified == "" {
					t.Errorf("%+v, %+v", result.Total, x)
				}
				if want := float64(restarts) / float64(
					restarts+result.Total.Count); x.RestartShare != want {
					t.Errorf("%d restarts beside %d transactions are a share of %g", restarts,
						result.Total.Count, x.RestartShare)
				}
				if x.SlowestClient > x.MedianClient || x.SlowestShare > 1 || x.LongestWait < 1 {
					t.Errorf("%+v", x.Fairness)
				}
			})
		})
	}
}

// A store that loses writes is found out, and the numbers are there all the same.
func TestLostWritesAreFoundOut(t *testing.T) {
	for name, w := range map[string]TransactionWorkload{"bank": &Bank{Accounts: 5},
		"counters": &Counters{Counters: 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newLedger(time.Millisecond)
				store.lose = 101
				result, err := RunTransactions(t.Context(), store, w, Config{Clients: 2, WarmUp: -1,
					Duration: time.Second})
				if !errors.Is(err, ErrWrongTotal) || result == nil || result.Total.Count == 0 ||
					result.Transactions.Verified != "" {
					t.Errorf("result %+v, error %v", result, err)
				}
			})
		})
	}
}

// Increments whose commit was not answered may be there or not.
func TestDoubtfulIncrementsAreAllowedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger(time.Millisecond)
		store.doubtful = 10
		w := &Counters{}
		result, err := RunTransactions(t.Context(), store, w, Config{Clients: 2, WarmUp: -1,
			Duration: time.Second})
		if err != nil || result.Total.Errors == 0 || w.perhaps.Load() == 0 {
			t.Errorf("%+v, %d of unknown outcome, error %v", result, w.perhaps.Load(), err)
		}
	})
}

func TestMixedTransactionsLieWhereTheyShould(t *testing.T) {
	for _, m := range []*Mixed{
		{KeysPerTxn: 1, PartitionsPerTxn: 1},
		{KeysPerTxn: 5, PartitionsPerTxn: 2, Contention: 0.99},
		{KeysPerTxn: 8, PartitionsPerTxn: 4, Reads: 3, Writes: 5},
		{KeysPerTxn: 4, PartitionsPerTxn: 4, Reads: -1},
		{KeysPerTxn: 4, PartitionsPerTxn: 3, Writes: -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newLedger(time.Millisecond)
			result, err := RunTransactions(t.Context(), store, m, Config{Clients: 3, Records: 200,
				WarmUp: -1, Duration: 200 * time.Millisecond})
			if err != nil || result.Total.Count == 0 || result.Total.Errors != 0 {
				t.Fatalf("%+v: %+v, %v", m, result, err)
			}
			if wrote := store.mu.calls["commit"] > 0; wrote != (m.Writes > 0) {
				t.Errorf("%s: %d commits", m.about(), store.mu.calls["commit"])
			}
			random := newRandom(7, 0)
			for range 200 {
				partitions, different := make(map[uint64]bool), make(map[uint64]bool)
				for _, n := range m.choose(random) {
					different[n] = true
					p, _ := store.PartitionOf(t.Context(), appendKey(nil, "user", n))
					partitions[p] = true
				}
				if len(different) != m.KeysPerTxn || len(partitions) != m.PartitionsPerTxn {
					t.Fatalf("%s: %d keys in %d partitions", m.about(), len(different),
						len(partitions))
				}
			}
		})
	}
}

// The higher the contention, the more transactions run again.
func TestContentionIsWhatItSays(t *testing.T) {
	share := func(contention float64) float64 {
		m := &Mixed{Contention: contention, partitions: []mixedPartition{
			{records: make([]uint64, 1000)}}}
		for i := range m.partitions[0].records {
			m.partitions[0].records[i] = uint64(i)
		}
		if contention > 0 {
			m.partitions[0].zipf = newZipf(1000, contention)
		}
		random, first := newRandom(3, 0), 0
		for range 20_000 {
			if m.partitions[0].draw(random) == 0 {
				first++
			}
		}
		return float64(first) / 20_000
	}
	none, some, much := share(0), share(0.6), share(0.99)
	if none > 0.003 || some < 3*none || much < 3*some {
		t.Errorf("the most popular of 1000 keys is drawn in %g, %g and %g of all cases", none, some,
			much)
	}
}

// What makes no sense is refused by name, and before anything is written.
func TestTransactionalWorkloadsAreChecked(t *testing.T) {
	for _, c := range []struct {
		w     TransactionWorkload
		field string
	}{
		{&Mixed{KeysPerTxn: -1}, "KeysPerTxn"},
		{&Mixed{PartitionsPerTxn: -1}, "PartitionsPerTxn"},
		{&Mixed{KeysPerTxn: 2, PartitionsPerTxn: 3}, "PartitionsPerTxn"},
		{&Mixed{KeysPerTxn: 2, Reads: 3}, "Reads"},
		{&Mixed{KeysPerTxn: 2, Writes: 3}, "Writes"},
		{&Mixed{KeysPerTxn: 3, Reads: 1, Writes: 1}, "Writes"},
		{&Mixed{Contention: 1}, "Contention"},
		// there are four partitions
		{&Mixed{KeysPerTxn: 5, PartitionsPerTxn: 5}, "PartitionsPerTxn"},
		{&Mixed{KeysPerTxn: 1000}, "KeysPerTxn"}, // of fewer records
		// all of which are not in one partition
		{&Mixed{KeysPerTxn: 99}, "Records"},
		{&Bank{Accounts: 1}, "Accounts"},
		{&Bank{Audits: 2}, "Audits"},
		{&Counters{Counters: -1}, "Counters"},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newLedger(0)
			_, err := RunTransactions(t.Context(), store, c.w,
				Config{Records: 100, Duration: time.Millisecond})
			var wrong *InvalidError
			if !errors.As(err, &wrong) || wrong.Field != c.field {
				t.Errorf("%+v: %v, want an error about %s", c.w, err, c.field)
			}
			if len(store.state.values) > 0 || len(store.mu.rows) > 0 {
				t.Errorf("%+v: something was written", c.w)
			}
		})
	}
}

func TestOneIsSingular(t *testing.T) {
	for _, c := range []struct {
		w    TransactionWorkload
		want string
	}{
		{&Counters{Counters: 1}, "1 counter"},
		{&Counters{Counters: 1000, Lock: true}, "1,000 counters, locked as they are read"},
		{&Counters{Counters: 1, Lock: true}, "1 counter, locked as it is read"},
		{&Bank{Accounts: 2}, "2 accounts"},
		{&Mixed{KeysPerTxn: 1, PartitionsPerTxn: 1, Reads: 1, Writes: 1,
			partitions: make([]mixedPartition, 1)},
			"1 key in 1 of 1 partition, 1 read, 1 written, contention 0"},
		{&Mixed{KeysPerTxn: 4, PartitionsPerTxn: 1, Reads: 4, Writes: -1,
			partitions: make([]mixedPartition, 8)},
			"4 keys in 1 of 8 partitions, 4 read, 0 written, contention 0"},
	} {
		if got := c.w.about(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	r := newResult(Config{Clients: 1, Records: 1, ValueSize: 1}, time.Second)
	var plain, transactions bytes.Buffer
	err := r.Write(&plain, "table")
	r.Transactions = &Transactions{Tally: Tally{Restarts: map[string]uint64{"conflict": 1}},
		MostAttempts: 1}
	if err = errors.Join(err, r.Write(&transactions, "table")); err != nil {
		t.Fatal(err)
	}
	if got := plain.String(); !strings.Contains(got, ": 1 client, 1 record of 1 byte, ") {
		t.Errorf("%s", got)
	}
	if got := transactions.String(); !strings.Contains(got, "run again: 1 attempt, ") ||
		!strings.Contains(got, "; at most 1 attempt for one transaction\n") {
		t.Errorf("%s", got)
	}
}

func TestTransactionReport(t *testing.T) {
	r := newResult(Config{Workload: Workload{Name: "bank"}, Clients: 64, Seed: 1,
		WarmUp: 2 * time.Second}, 10*time.Second)
	c := &client{run: &run{cfg: Config{Classify: Classify}}}
	c.run.phase.Store(phaseMeasure)
	for i := range 3000 {
		c.account(Transfer, phaseMeasure, time.Duration(800+i)*time.Microsecond, 0, nil)
	}
	for kind := range c.records {
		r.merged[kind].merge(&c.records[kind])
	}
	r.finish()
	r.Keys = ""
	r.Transactions = &Transactions{
		About: "100 accounts", Tally: Tally{Commits: map[string]uint64{"one": 400, "two": 2600},
			Restarts: map[string]uint64{"wounded": 200, "conflict": 1000}},
		RestartShare: 1200.0 / 4200, MostAttempts: 7, Fairness: Fairness{MedianClient: 47,
			SlowestClient: 40, SlowestShare: 40.0 / 47, LongestWait: 3.26},
		Verified: "the accounts have 100000 in all, as in the beginning",
	}
	var out bytes.Buffer
	if err := r.Write(&out, "table"); err != nil {
		t.Fatal(err)
	}
	want := `workload bank: 64 clients, 100 accounts, 10.0 s measured after 2.0 s warm-up, seed 1
 operation  count  ops/s     mean      p50      p95      p99      max  errors
 transfer   3,000    300  2.30 ms  2.30 ms  3.65 ms  3.77 ms  3.80 ms       0
run again: 1,200 attempts, 28.6 % of all (conflict 1,000, wounded 200); ` +
		`at most 7 attempts for one transaction
commits by phases: two 2,600, one 400
fairness: the slowest client did 40, 85 % of the median client's 47; ` +
		`the longest wait was 3.3 times the median
verified: the accounts have 100000 in all, as in the beginning
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	out.Reset()
	if err := r.Write(&out, "json"); err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Transactions == nil ||
		back.Transactions.Restarts["wounded"] != 200 || !strings.Contains(out.String(),
		`"slowest_share"`) {
		t.Errorf("%v, json:\n%s", err, out.String())
	}
}

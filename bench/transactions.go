package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// TransactionWorkload is what the clients of RunTransactions do: Mixed, Bank or Counters.
type TransactionWorkload interface {
	// name is the report's name for it, and about says in a few words what it does.
	name() string
	about() string
	// withDefaults fills in what is not given, and says what makes no sense.
	withDefaults(cfg Config) error
	// prepare writes what has to be there. It sets the run's number of records.
	prepare(ctx context.Context, r *transactionRun) error
	// draw draws a client's next transaction.
	draw(random *rand.Rand) (Kind, func(ctx context.Context) error)
	// verify looks whether what is there at the end is right, and says what it has found. nothing:
	// there is nothing to look at.
	verify(ctx context.Context) (found string, err error)
}

// transactionRun is what the clients share.
type transactionRun struct {
	cfg      Config
	store    Transactor
	workload TransactionWorkload
	// before and within are the store's tally when the window began, and what was counted inside.
	before, within Tally
	measuring      atomic.Bool
	mostAttempts   atomic.Int64
}

// RunTransactions makes ready what the workload needs, warms up, measures, looks whether what is
// there then is right, and reports. It does not use Config's Workload. If what is there is wrong,
// it returns the result and an error. When ctx ends early it does as Run does, and does not look.
func RunTransactions(ctx context.Context, store Transactor, w TransactionWorkload, cfg Config) (
	*Result, error) {
	cfg, err := checked(w, cfg)
	if err != nil {
		return nil, err
	}
	t := &transactionRun{cfg: cfg, store: store, workload: w}
	if err := w.prepare(ctx, t); err != nil {
		return nil, err
	}
	r := &run{cfg: t.cfg, transactions: t}
	result, clients := r.drive(ctx)
	result.Keys = ""
	result.Transactions = t.result(result, clients)
	if result.Interrupted {
		if len(result.Operations) == 0 {
			return nil, ctx.Err()
		}
		return result, nil
	}
	if result.Transactions.Verified, err = w.verify(ctx); err != nil {
		return result, fmt.Errorf("%s: %w", w.name(), err)
	}
	return result, nil
}

// CheckTransactions says what makes no sense about a workload. What depends on the store shows when
// it runs.
func CheckTransactions(w TransactionWorkload, cfg Config) error {
	_, err := checked(w, cfg)
	return err
}

// checked fills in what is not given.
func checked(w TransactionWorkload, cfg Config) (Config, error) {
	cfg.Workload = Workload{Name: w.name(), Mix: mixOf(Transaction, 1)}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return cfg, err
	}
	return cfg, w.withDefaults(cfg)
}

func (t *transactionRun) windowBegins() {
	t.before = t.store.Tally()
	t.measuring.Store(true)
}

func (t *transactionRun) windowEnds() {
	t.measuring.Store(false)
	t.within = t.store.Tally().since(t.before)
}

func (t *transactionRun) draw(random *rand.Rand) operation {
	kind, transact := t.workload.draw(random)
	return operation{kind: kind, transact: transact}
}

// update is Transactor.Update, and counts attempts.
func (t *transactionRun) update(ctx context.Context, f func(Tx) error) error {
	var attempts int64
	err := t.store.Update(ctx, func(tx Tx) error {
		attempts++
		return f(tx)
	})
	if t.measuring.Load() {
		for most := t.mostAttempts.Load(); attempts > most && !t.mostAttempts.CompareAndSwap(most,
			attempts); {
			most = t.mostAttempts.Load()
		}
	}
	return err
}

// Transactions is what only transactional workloads measure. The counts are of the window.
type Transactions struct {
	// About says what a transaction does.
	About string `json:"about"`
	Tally
	// RestartShare is the part of all attempts that had to run again, and MostAttempts the most
	// that one transaction took.
	RestartShare float64 `json:"restart_share"`
	MostAttempts int64   `json:"most_attempts"`
	Fairness     `json:"fairness"`
	// Verified says what was found at the end; empty if the workload has nothing to look at.
	Verified string `json:"verified,omitempty"`
}

func (t *transactionRun) result(r *Result, clients []*client) *Transactions {
	x := &Transactions{About: t.workload.about(), Tally: t.within,
		MostAttempts: t.mostAttempts.Load(), Fairness: fairnessOf(r, clients)}
	restarts := total(x.Restarts)
	if attempts := restarts + r.Total.Count; attempts > 0 {
		x.RestartShare = float64(restarts) / float64(attempts)
	}
	return x
}

func total(counts map[string]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Fairness compares the clients with each other.
type Fairness struct {
	// MedianClient and SlowestClient are how many operations of these two succeeded inside the
	// window.
	MedianClient  uint64 `json:"median_client"`
	SlowestClient uint64 `json:"slowest_client"`
	// SlowestShare is the slowest client's throughput over that of the median one.
	SlowestShare float64 `json:"slowest_share"`
	// LongestWait is the longest latency of all kinds of operations over the median one of its
	// kind.
	LongestWait float64 `json:"longest_wait"`
}

func fairnessOf(r *Result, clients []*client) (f Fairness) {
	counts := make([]uint64, len(clients))
	for i, c := range clients {
		for kind := range c.records {
			counts[i] += c.records[kind].inWindow
		}
	}
	slices.Sort(counts)
	f.SlowestClient, f.MedianClient = counts[0], counts[len(counts)/2]
	if f.MedianClient > 0 {
		f.SlowestShare = float64(f.SlowestClient) / float64(f.MedianClient)
	}
	for _, op := range r.Operations {
		if op.P50 > 0 {
			f.LongestWait = max(f.LongestWait, float64(op.Max)/float64(op.P50))
		}
	}
	return f
}

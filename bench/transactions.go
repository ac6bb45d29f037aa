package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// TransactionWorkload is a workload for RunTransactions: Mixed, Bank or Counters.
type TransactionWorkload interface {
	// name is the name in the report. about describes the workload in a few words.
	name() string
	about() string
	// withDefaults fills in defaults, and returns an error for invalid values.
	withDefaults(cfg Config) error
	// prepare writes the initial data. It sets the run's number of records.
	prepare(ctx context.Context, r *transactionRun) error
	// draw draws a client's next transaction.
	draw(random *rand.Rand) (Kind, func(ctx context.Context) error)
	// verify checks the data at the end, and describes the result. found is empty if there is nothing
	// to check.
	verify(ctx context.Context) (found string, err error)
}

// transactionRun is the state that the clients share.
type transactionRun struct {
	cfg      Config
	store    Transactor
	workload TransactionWorkload
	// before is the store's tally at the beginning of the window. within is the tally inside the
	// window.
	before, within Tally
	measuring      atomic.Bool
	mostAttempts   atomic.Int64
}

// RunTransactions prepares the data that the workload needs, warms up, measures, checks the data,
// and reports. It does not use Config's Workload. If the data is wrong, it returns the result and
// an error. If ctx ends early, it returns what Run would return, and does not check the data.
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

// CheckTransactions returns an error if a workload is not valid. Errors that depend on the store
// occur when the workload runs.
func CheckTransactions(w TransactionWorkload, cfg Config) error {
	_, err := checked(w, cfg)
	return err
}

// checked fills in defaults and checks the workload.
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

// update calls Transactor.Update, and counts the attempts.
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

// Transactions has the measurements of transactional workloads. The counts are for the window.
type Transactions struct {
	// About describes the transactions.
	About string `json:"about"`
	Tally
	// RestartShare is the share of attempts that had to run again. MostAttempts is the maximum number
	// of attempts of one transaction.
	RestartShare float64 `json:"restart_share"`
	MostAttempts int64   `json:"most_attempts"`
	Fairness     `json:"fairness"`
	// Verified is the result of the check at the end. It is empty if the workload has nothing to
	// check.
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
	// MedianClient and SlowestClient are the numbers of successful operations inside the window of the
	// median and of the slowest client.
	MedianClient  uint64 `json:"median_client"`
	SlowestClient uint64 `json:"slowest_client"`
	// SlowestShare is the slowest client's throughput divided by the median client's.
	SlowestShare float64 `json:"slowest_share"`
	// LongestWait is the largest ratio, over all kinds of operations, of the longest latency to the
	// median latency.
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

package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// Elders runs long transactions. Each transaction locks some counters one after the other, in any
// order, and increments all of them. It rests in between, now and then for longer than the time
// after which a silent client is believed dead. So nearly all transactions meet others with the
// same keys. The counters are checked as in Counters. A transaction that is aborted in favour of
// another one learns the other's id, and the other must be older: the oldest transaction goes
// first, also when it runs again.
type Elders struct {
	// Label is the name of the workload and of its keyspace. Layout has the options of the
	// keyspace, and Options the options of every transaction.
	Label   string
	Layout  []kv.KeyspaceOption
	Options []kv.TxnOption
	// Keys is the number of counters.
	Keys, Parallel int
	// Pause is the longest rest between transactions. Dwell is the longest rest with each lock.
	Pause, Dwell time.Duration

	counts []history.Counter
	known  []history.Monotonic
	ages   ages
}

const (
	// elderPatience is the deadline of a transaction with all its attempts.
	elderPatience = 20 * time.Second
	// elderSilence is a long rest of a client that is alive: heartbeats have to keep its locks.
	elderSilence = 4 * time.Second
)

// elderSplits has the keys at which a range keyspace of Elders is split.
var elderSplits = []string{"elder01", "elder02", "elder03"}

// Name implements Workload.
func (e *Elders) Name() string { return e.Label }

// Clients implements Workload.
func (e *Elders) Clients() int { return e.Parallel }

// Setup implements Workload.
func (e *Elders) Setup(ctx context.Context, run *driver.Run) error {
	e.counts, e.known = make([]history.Counter, e.Keys), make([]history.Monotonic, e.Keys)
	return run.CreateKeyspace(ctx, e.Label, e.Layout...)
}

func (e *Elders) key(i int) []byte { return fmt.Appendf(nil, "elder%02d", i) }

// Drive implements Workload.
func (e *Elders) Drive(ctx context.Context, run *driver.Run, _ int, client *driver.Client,
	random *rand.Rand) {
	for run.Rest(ctx, random, e.Pause) {
		attempt, cancel := context.WithTimeout(ctx, elderPatience)
		attempts, err := e.transact(attempt, run, client, random)
		cancel()
		run.Count("elder", err)
		run.CountTransaction(attempts, err)
	}
}

// transact runs a transaction until it succeeds, or fails for good.
func (e *Elders) transact(ctx context.Context, run *driver.Run, client *driver.Client,
	random *rand.Rand) (attempts int, err error) {
	which := random.Perm(e.Keys)[:2+random.IntN(2)]
	own := e.ages.begin(time.Now())
	defer func() { e.ages.end(own, time.Now()) }()
	tx, err := client.Begin(ctx, e.Options...)
	for attempts = 1; err == nil; attempts++ {
		e.ages.attempt(own, tx.ID())
		if err = e.attempt(ctx, client, tx, which, random); err == nil ||
			!errors.Is(err, kv.ErrConflict) && !errors.Is(err, kv.ErrTransactionAborted) {
			tx.Rollback()
			return attempts, err
		}
		if by, wounded := woundedBy(err); wounded {
			if complaint := e.ages.wounded(own, by, time.Now()); complaint != "" {
				run.Violation("elders: attempt %d of a transaction over %v was %v; %s", attempts,
					which, err, complaint)
			}
		}
		pause(ctx, time.Duration(random.Int64N(int64(20*time.Millisecond))))
		tx, err = tx.Again(ctx)
	}
	return attempts, err
}

// woundedBy returns the attempt in favour of which a transaction was aborted; false if the
// transaction was aborted for another reason, such as silence.
func woundedBy(err error) (attempt string, wounded bool) {
	var e *kv.Error
	if !errors.Is(err, kv.ErrWounded) || !errors.As(err, &e) {
		return "", false
	}
	return e.Transaction, true
}

// attempt increments the counters.
func (e *Elders) attempt(ctx context.Context, client *driver.Client, tx *driver.Txn, which []int,
	random *rand.Rand) error {
	ks := client.Keyspace(e.Label)
	counted := make([]uint64, len(which))
	for n, i := range which {
		pair, err := tx.GetForUpdate(ctx, ks, e.key(i))
		if err := driver.IgnoreNotFound(err); err != nil {
			return err
		}
		if err == nil {
			if counted[n], err = strconv.ParseUint(string(pair.Value), 10, 64); err != nil {
				return err
			}
		}
		counted[n]++
		rest := time.Duration(random.Int64N(int64(e.Dwell)))
		if random.IntN(30) == 0 {
			rest = elderSilence
		}
		pause(ctx, rest)
		if err := tx.Put(ks, e.key(i), strconv.AppendUint(nil, counted[n], 10)); err != nil {
			return err
		}
	}
	for n, i := range which {
		e.known[i].BeginWrite(counted[n])
	}
	_, err := tx.Commit(ctx)
	for n, i := range which {
		switch {
		case err == nil:
			e.counts[i].Added()
			e.known[i].Wrote(counted[n])
		case driver.Unknown(err):
			e.counts[i].Unknown()
		}
	}
	return err
}

// pause waits for d, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Check implements Workload.
func (e *Elders) Check(ctx context.Context, _ *driver.Run, client *driver.Client) error {
	var errs []error
	for i := range e.counts {
		var n uint64
		floor := e.known[i].Known()
		pair, err := client.Keyspace(e.Label).Get(ctx, e.key(i))
		if err == nil {
			n, err = strconv.ParseUint(string(pair.Value), 10, 64)
		} else {
			err = driver.IgnoreNotFound(err)
		}
		if err == nil {
			err = e.known[i].Read(floor, n)
		}
		if err == nil {
			err = e.counts[i].Check(n)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("elders: counter %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

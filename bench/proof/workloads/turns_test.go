package workloads

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/isolation"
	"github.com/tidemarkdb/tidemark/kv"
)

// inTurns is a Transactor whose updates all need the same lock. Each update gets the lock in its
// turn, and keeps it until its commit has waited for the clocks.
type inTurns struct {
	driver.Transactor
	client *driver.Client
	lock   chan struct{}
}

// Update implements Transactor.
func (q inTurns) Update(ctx context.Context, f func(driver.Tx) error) (at kv.Timestamp, err error) {
	ended := q.client.Report(ctx, "update")
	defer func() { ended(err) }()
	select {
	case q.lock <- struct{}{}:
	case <-ctx.Done():
		return kv.Timestamp{}, ctx.Err()
	}
	defer func() { <-q.lock }()
	at, err = q.Transactor.Update(ctx, f)
	if err != nil {
		return at, err
	}
	select {
	case <-time.After(longestWait):
	case <-ctx.Done():
		return kv.Timestamp{}, kv.ErrOutcomeUnknown
	}
	return at, err
}

// TestTurnsOfCommitsThatWait: if commits wait for the clocks and all clients need the same lock, a
// workload gives its transactions enough time to wait for all others, so that none fails in calm.
func TestTurnsOfCommitsThatWait(t *testing.T) {
	for _, load := range StandardTransactions(
		isolation.Options{Level: isolation.StrictSerialisable}) {
		t.Run(load.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, run := newMemDB(strict), driver.NewRun(nil)
				if err := load.Setup(t.Context(), run, db); err != nil {
					t.Fatal(err)
				}
				lock := make(chan struct{}, 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var running sync.WaitGroup
				for i := range load.Clients() {
					client := inTurns{db.client(i / 2), run.Client(nil, driver.NewRetries(),
						load.Name()), lock}
					running.Go(func() {
						load.Drive(ctx, run, i, client, rand.New(rand.NewPCG(uint64(i), 1)))
					})
				}
				time.Sleep(time.Minute) // virtual time
				cancel()
				running.Wait()
				for _, v := range run.Violations() {
					t.Error(v)
				}
			})
		})
	}
}

package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// Registers reads, writes, deletes and compares-and-swaps a few keys. The history of each key must
// be linearisable. No write may be lost or done twice, also if a later write has overwritten it
// (ledger). The keys change every few seconds, so that no history becomes too long to check.
//
// With a single key and short pauses, nearly every retry comes after another client's write.
type Registers struct {
	// Keyspace is created with Partitions hash partitions.
	Keyspace   string
	Partitions int
	// Keys is the number of keys in use at a time. Age is how long keys are used.
	Keys int
	Age  time.Duration
	// Pause is the longest rest between two operations of a client.
	Pause time.Duration
	// Parallel is the number of clients that do everything. Readers is the number of clients that
	// only read: a client whose write waits for a leader that was cut off reads nothing meanwhile.
	Parallel, Readers int

	windows driver.Windows[[]*register]
}

// Name implements Workload.
func (r *Registers) Name() string { return r.Keyspace }

// Clients implements Workload.
func (r *Registers) Clients() int { return r.Parallel + r.Readers }

// Setup implements Workload.
func (r *Registers) Setup(ctx context.Context, run *driver.Run) error {
	r.windows.Age = r.Age
	r.windows.Fresh = func(number int64) []*register {
		keys := make([]*register, r.Keys)
		for i := range keys {
			keys[i] = &register{run: run, workload: r.Keyspace, key: fmt.Sprintf("%s/%d/%d",
				r.Keyspace, i, number)}
		}
		return keys
	}
	return run.CreateKeyspace(ctx, r.Keyspace, kv.Hash(r.Partitions))
}

// Drive implements Workload.
func (r *Registers) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(r.Keyspace)
	var window int64
	last := make(map[*register]seen)
	closing := func(ctx context.Context,
		keys []*register) error {
		return r.close(ctx, run, ks, keys)
	}
	for n := 0; run.Rest(ctx, random, r.Pause); n++ {
		if !r.windows.CloseDue(ctx, run, closing) {
			continue
		}
		w := r.windows.Enter(run.Elapsed())
		if w.Number != window {
			window = w.Number
			clear(last)
		}
		key := w.State[random.IntN(r.Keys)]
		last[key] = r.operate(ctx, ks, key, number, last[key], fmt.Sprintf("%d.%d", number, n),
			random)
		r.windows.Leave(w)
	}
}

// operate does one operation, and returns what the client now believes to be the value.
func (r *Registers) operate(ctx context.Context, ks *driver.Keyspace, key *register, number int,
	last seen, value string,
	random *rand.Rand) seen {
	ctx, cancel := driver.Patience(ctx, random)
	defer cancel()
	n := random.IntN(100)
	if number >= r.Parallel {
		n = 0
		ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
	}
	switch {
	case n < 40:
		if found, err := key.get(ctx, ks, number); err == nil {
			return found
		}
	case n < 65:
		if version, err := key.put(ctx, ks, number, value); err == nil {
			return seen{history.Value(value), version}
		}
	case n < 72:
		if err := key.delete(ctx, ks, number); err == nil {
			return seen{}
		}
	default:
		if random.IntN(8) == 0 {
			value = ""
		}
		return key.swap(ctx, ks, number, last, random.IntN(2) == 0, value)
	}
	return last
}

// close checks the keys of a window that is over.
func (r *Registers) close(ctx context.Context, run *driver.Run, ks *driver.Keyspace,
	keys []*register) error {
	names := make(map[string]bool)
	for _, key := range keys {
		if err := key.close(ctx, ks); err != nil {
			return err
		}
		names[key.key] = true
	}
	run.Forget(func(key string) bool { return names[key] })
	return nil
}

// Check implements Workload: the last value of every key belongs to its history.
func (r *Registers) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	ks := client.Keyspace(r.Keyspace)
	return r.windows.CloseAll(ctx, func(ctx context.Context,
		keys []*register) error {
		return r.close(ctx, run, ks, keys)
	})
}

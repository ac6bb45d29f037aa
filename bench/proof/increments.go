package proof

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tidemarkdb/tidemark/bench/history"
)

// Increments counts keys up by reading and writing them in a transaction. No acknowledged increment is lost, which is what
// happens when two transactions write what they made of the same reading; none is done twice; no reading is older than what
// was known before it began.
type Increments struct {
	Keys, Parallel int
	Pause          time.Duration

	counts []history.Counter
	known  []history.Monotonic
}

// Name implements Transactions.
func (*Increments) Name() string { return "increments" }

// Clients implements Transactions.
func (c *Increments) Clients() int { return c.Parallel }

// Splits implements Transactions.
func (*Increments) Splits() []string { return []string{"increment01", "increment02"} }

// Setup implements Transactions.
func (c *Increments) Setup(context.Context, *Run, Transactor) error {
	c.counts, c.known = make([]history.Counter, c.Keys), make([]history.Monotonic, c.Keys)
	return nil
}

func (c *Increments) key(i int) []byte { return fmt.Appendf(nil, "increment%02d", i) }

func (c *Increments) get(ctx context.Context, tx Tx, i int) (uint64, error) {
	value, err := tx.Get(ctx, c.key(i))
	if err != nil {
		return 0, ignoreNotFound(err)
	}
	return strconv.ParseUint(string(value), 10, 64)
}

// Drive implements Transactions.
func (c *Increments) Drive(ctx context.Context, run *Run, _ int, db Transactor, random *rand.Rand) {
	for run.Rest(ctx, random, c.Pause) {
		attempt, cancel := patience(ctx, random)
		i := random.IntN(c.Keys)
		if random.IntN(3) == 0 {
			run.Count("increment read", c.read(attempt, run, db, i))
		} else {
			run.Count("increment", c.add(attempt, db, i))
		}
		cancel()
	}
}

func (c *Increments) add(ctx context.Context, db Transactor, i int) error {
	var n uint64
	_, err := db.Update(ctx, func(tx Tx) (err error) {
		if n, err = c.get(ctx, tx, i); err != nil {
			return err
		}
		n++
		c.known[i].BeginWrite(n)
		return tx.Put(c.key(i), strconv.AppendUint(nil, n, 10))
	})
	switch {
	case err == nil:
		c.counts[i].Added()
		c.known[i].Wrote(n)
	case unknown(err):
		c.counts[i].Unknown()
	}
	return err
}

func (c *Increments) read(ctx context.Context, run *Run, db Transactor, i int) error {
	floor := c.known[i].Known()
	var n uint64
	_, err := db.View(ctx, func(tx Tx) (err error) {
		n, err = c.get(ctx, tx, i)
		return err
	})
	if err != nil {
		return err
	}
	if err := c.known[i].Read(floor, n); err != nil {
		run.Violation("increments of key %d: %v", i, err)
	}
	return nil
}

// Check implements Transactions.
func (c *Increments) Check(ctx context.Context, run *Run, db Transactor) error {
	var errs []error
	for i := range c.counts {
		err := c.read(ctx, run, db, i)
		if err == nil {
			err = c.counts[i].Check(c.known[i].Known())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("increments of key %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

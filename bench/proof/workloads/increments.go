package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
)

// Increments increments counters by a read and a write in a transaction. No acknowledged increment
// is lost, as happens when two transactions write what they computed from the same read. No
// increment is done twice. No read is older than what was known before the read began. No reader
// sees a write of an attempt that was refused or run again. No commit builds on a write that is
// refused later.
type Increments struct {
	Keys, Parallel int
	Pause          time.Duration
	// Least is the shortest deadline of a transaction without hurry.
	Least time.Duration

	counts []history.Counter
	known  []history.Monotonic
	// refused has the last refused attempts, and the reasons.
	refused refusals
}

// Name implements Transactions.
func (*Increments) Name() string { return "increments" }

// Clients implements Transactions.
func (c *Increments) Clients() int { return c.Parallel }

// Splits implements Transactions.
func (*Increments) Splits() []string { return []string{"increment01", "increment02"} }

// Setup implements Transactions.
func (c *Increments) Setup(context.Context, *driver.Run, driver.Transactor) error {
	c.counts, c.known = make([]history.Counter, c.Keys), make([]history.Monotonic, c.Keys)
	return nil
}

func (c *Increments) key(i int) []byte { return fmt.Appendf(nil, "increment%02d", i) }

// get reads a counter: its number, and the attempt that wrote it; "" if the counter has no value
// yet.
func (c *Increments) get(ctx context.Context, run *driver.Run, tx driver.Tx, i int) (n uint64,
	by string, err error) {
	value, err := tx.Get(ctx, c.key(i))
	if err != nil {
		return 0, "", driver.IgnoreNotFound(err)
	}
	number, by, _ := strings.Cut(string(value), " ")
	if why, refused := c.refused.know(by); refused {
		run.Violation("increments: key %d has %s of attempt %s, which had no effect: %s", i, number,
			by, why)
	}
	n, err = strconv.ParseUint(number, 10, 64)
	return n, by, err
}

// refuse notes that an attempt had no effect.
func (c *Increments) refuse(run *driver.Run, i int, attempt, why string) {
	if on := c.refused.note(attempt, why); on != "" {
		run.Violation("increments: the commit of attempt %s of key %d builds on attempt %s, "+
			"which had no effect: %s", on, i, attempt, why)
	}
}

// Drive implements Transactions.
func (c *Increments) Drive(ctx context.Context, run *driver.Run, number int, db driver.Transactor,
	random *rand.Rand) {
	for n := 0; run.Rest(ctx, random, c.Pause); n++ {
		attempt, cancel := driver.PatienceOf(ctx, random, c.Least)
		i := random.IntN(c.Keys)
		if random.IntN(3) == 0 {
			run.Count("increment read", c.read(attempt, run, db, i))
		} else {
			run.Count("increment", c.add(attempt, run, db, i, fmt.Sprintf("%d.%d", number, n)))
		}
		cancel()
	}
}

func (c *Increments) add(ctx context.Context, run *driver.Run, db driver.Transactor, i int,
	by string) error {
	var n uint64
	var below string // the attempt that wrote the number which was incremented
	attempts := 0
	attempt := func() string { return fmt.Sprintf("%s.%d", by, attempts) }
	_, err := db.Update(ctx, func(tx driver.Tx) (err error) {
		if attempts > 0 {
			c.refuse(run, i, attempt(), "it was run again")
		}
		attempts++
		if n, below, err = c.get(ctx, run, tx, i); err != nil {
			return err
		}
		n++
		c.known[i].BeginWrite(n)
		return tx.Put(c.key(i), fmt.Appendf(nil, "%d %s", n, attempt()))
	})
	switch {
	case err != nil && !driver.Unknown(err):
		c.refuse(run, i, attempt(), err.Error())
	case err == nil:
		if why, refused := c.refused.build(attempt(), below); refused {
			run.Violation("increments: the commit of attempt %s of key %d builds on attempt %s, "+
				"which had no effect: %s", attempt(), i, below, why)
		}
		c.counts[i].Added()
		c.known[i].Wrote(n)
	default:
		c.counts[i].Unknown()
	}
	return err
}

func (c *Increments) read(ctx context.Context, run *driver.Run, db driver.Transactor, i int) error {
	floor := c.known[i].Known()
	var n uint64
	_, err := db.View(ctx, func(tx driver.Tx) (err error) {
		n, _, err = c.get(ctx, run, tx, i)
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
func (c *Increments) Check(ctx context.Context, run *driver.Run, db driver.Transactor) error {
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

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// Counters adds one to a counter in every transaction. At the end, the sum of the counters must be
// the number of increments.
type Counters struct {
	// Counters is the number of counters. All are equally likely. The default is 1.
	Counters int
	// Lock makes a transaction lock the counter when it reads it.
	Lock bool

	run  *transactionRun
	keys [][]byte
	// added counts the committed increments. perhaps counts the increments that may have been
	// committed.
	added, perhaps atomic.Uint64
}

func (c *Counters) name() string { return "counters" }

func (c *Counters) about() string {
	how := ""
	switch {
	case c.Lock && c.Counters == 1:
		how = ", locked as it is read"
	case c.Lock:
		how = ", locked as they are read"
	}
	return counted(uint64(c.Counters), "counter") + how
}

func (c *Counters) withDefaults(Config) error {
	if c.Counters == 0 {
		c.Counters = 1
	}
	if c.Counters < 1 || c.Counters > MaxAccounts {
		return invalid("Counters", c.Counters, "it is 1 to %d", MaxAccounts)
	}
	return nil
}

func (c *Counters) prepare(ctx context.Context, r *transactionRun) error {
	c.run, r.cfg.Records, r.cfg.ValueSize = r, uint64(c.Counters), 8
	c.keys = numberedKeys(r.cfg.KeyPrefix+"counter-", c.Counters)
	return setNumbers(ctx, r.store, c.keys, 0)
}

func (c *Counters) draw(random *rand.Rand) (Kind, func(context.Context) error) {
	key := c.keys[random.IntN(len(c.keys))]
	return Increment, func(ctx context.Context) error {
		err := c.run.update(ctx, func(tx Tx) error {
			value, err := tx.Get(ctx, key, c.Lock)
			if err != nil {
				return err
			}
			n, err := number(key, value)
			if err != nil {
				return err
			}
			return tx.Put(key, numberValue(n+1))
		})
		switch {
		case err == nil:
			c.added.Add(1)
		case c.run.store.Uncertain(err):
			c.perhaps.Add(1)
		}
		return err
	}
}

func (c *Counters) verify(ctx context.Context) (string, error) {
	sum, err := addUp(ctx, c.run.store, c.keys)
	if err != nil {
		return "", err
	}
	added, perhaps := c.added.Load(), c.perhaps.Load()
	have := "the counters have %d in all"
	if c.Counters == 1 {
		have = "the counter has %d"
	}
	if sum < added || sum > added+perhaps {
		return "", fmt.Errorf("%w: "+have+"; %s acknowledged, and perhaps %d more made",
			ErrWrongTotal, sum, counted(added, "increment"), perhaps)
	}
	return fmt.Sprintf(have+": every increment is there", sum), nil
}

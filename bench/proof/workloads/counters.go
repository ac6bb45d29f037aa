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

// Counters increments keys by compare-and-swap. At the end each counter is at least the number of
// acknowledged increments, and at most that number plus the increments of unknown outcome. No read
// returns less than a read that ended before it began.
type Counters struct {
	Keys     int
	Parallel int
	Pause    time.Duration

	counts []history.Counter
	known  []history.Monotonic
}

// Name implements Workload.
func (*Counters) Name() string { return "counters" }

// Clients implements Workload.
func (c *Counters) Clients() int { return c.Parallel }

// Setup implements Workload.
func (c *Counters) Setup(ctx context.Context, run *driver.Run) error {
	c.counts, c.known = make([]history.Counter, c.Keys), make([]history.Monotonic, c.Keys)
	return run.CreateKeyspace(ctx, "counters", kv.Range([]byte("c3"), []byte("c6")))
}

func (c *Counters) key(i int) []byte { return fmt.Appendf(nil, "c%d", i) }

// Drive implements Workload.
func (c *Counters) Drive(ctx context.Context, run *driver.Run, _ int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace("counters")
	for run.Rest(ctx, random, c.Pause) {
		c.add(ctx, run, ks, random.IntN(c.Keys), random)
	}
}

func (c *Counters) add(ctx context.Context, run *driver.Run, ks *driver.Keyspace, i int,
	random *rand.Rand) {
	ctx, cancel := driver.Patience(ctx, random)
	defer cancel()
	number, version, err := c.read(ctx, run, ks, i)
	run.Count("counter read", err)
	if err != nil {
		return
	}
	expect := kv.ExpectAbsent()
	if number > 0 {
		expect = kv.ExpectVersion(version)
		if random.IntN(2) == 0 {
			expect = kv.ExpectValue(strconv.AppendUint(nil, number, 10))
		}
	}
	c.known[i].BeginWrite(number + 1)
	swap, err := ks.CompareAndSwap(ctx, c.key(i), expect,
		kv.Set(strconv.AppendUint(nil, number+1, 10)))
	run.Count("counter add", err)
	switch {
	case err == nil && swap.Swapped:
		c.counts[i].Added()
		c.known[i].Wrote(number + 1)
	case driver.Unknown(err):
		c.counts[i].Unknown()
	}
}

func (c *Counters) read(ctx context.Context, run *driver.Run, ks *driver.Keyspace, i int) (
	number uint64, version kv.Timestamp, err error) {
	floor := c.known[i].Known()
	pair, err := ks.Get(ctx, c.key(i))
	switch {
	case errors.Is(err, kv.ErrNotFound):
	case err != nil:
		return 0, version, err
	default:
		version = pair.Version
		if number, err = strconv.ParseUint(string(pair.Value), 10, 64); err != nil {
			run.Violation("counter %d holds %q", i, pair.Value)
		}
	}
	if err := c.known[i].Read(floor, number); err != nil {
		run.Violation("counter %d: %v", i, err)
	}
	return number, version, nil
}

// Check implements Workload.
func (c *Counters) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	ks := client.Keyspace("counters")
	var errs []error
	for i := range c.counts {
		number, _, err := c.read(ctx, run, ks, i)
		if err == nil {
			err = c.counts[i].Check(number)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("counter %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

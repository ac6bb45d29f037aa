package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// bulk overwrites a few keys with large values, beside the other workloads. The large values cause
// flushes and truncated logs, and followers that were away need snapshots, although the run has few
// operations. Each key has one writer, and the number in its value never decreases.
type bulk struct {
	pause time.Duration
	known []history.Monotonic
}

const (
	bulkKeys  = 4
	bulkBytes = 6 << 10
)

// Name implements driver.Workload.
func (*bulk) Name() string { return "bulk" }

// Clients implements driver.Workload.
func (*bulk) Clients() int { return 1 }

// Setup implements driver.Workload.
func (b *bulk) Setup(ctx context.Context, run *driver.Run) error {
	b.known = make([]history.Monotonic, bulkKeys)
	client, err := run.Open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.CreateKeyspace(ctx, "bulk", kv.Hash(2))
	return err
}

func (*bulk) key(i int) []byte { return fmt.Appendf(nil, "bulk%d", i) }

// Drive implements driver.Workload. It ignores the pace, so that followers miss large values in the
// calm too.
func (b *bulk) Drive(ctx context.Context, run *driver.Run, _ int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace("bulk")
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(2 * b.pause)))):
		}
		i := random.IntN(bulkKeys)
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		b.known[i].BeginWrite(n)
		_, err := ks.Put(attempt, b.key(i),
			[]byte(fmt.Sprintf("%d %s", n, strings.Repeat("x", bulkBytes))))
		if err == nil {
			b.known[i].Wrote(n)
		}
		run.Count("bulk write", err)
		cancel()
	}
}

// Check implements driver.Workload.
func (b *bulk) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	for i := range b.known {
		floor := b.known[i].Known()
		pair, err := client.Keyspace("bulk").Get(ctx, b.key(i))
		if err != nil && floor == 0 {
			continue
		} else if err != nil {
			return err
		}
		number, rest, _ := strings.Cut(string(pair.Value), " ")
		n, err := strconv.ParseUint(number, 10, 64)
		if err == nil {
			err = b.known[i].Read(floor, n)
		}
		if err != nil || len(rest) != bulkBytes {
			return fmt.Errorf("key %d holds %.20q and %d bytes: %w", i, number, len(rest), err)
		}
	}
	return nil
}

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

// Watched increments keys by one writer each, while many clients read the keys all the time. The
// writers have short deadlines and try again, so that they find a new leader at once. Some readers
// have short deadlines too. Other readers wait through an election, so that they read from a new
// leader as soon as possible. No read may return less than what was known when the read began:
// neither a leader that was replaced without its knowledge, nor a leader that has not yet applied
// all its entries, may answer with less.
type Watched struct {
	// Keys is the number of keys, of writers and of hash partitions. Readers is the number of
	// clients that read all keys.
	Keys, Readers int
	// Pause is the longest rest of a writer, and ReadPause the longest rest of a reader.
	Pause, ReadPause time.Duration

	known []history.Monotonic
}

const watched = "watched"

// Name implements Workload.
func (*Watched) Name() string { return watched }

// Clients implements Workload.
func (w *Watched) Clients() int { return w.Keys + w.Readers }

// Setup implements Workload.
func (w *Watched) Setup(ctx context.Context, run *driver.Run) error {
	w.known = make([]history.Monotonic, w.Keys)
	return run.CreateKeyspace(ctx, watched, kv.Hash(w.Keys))
}

func (w *Watched) key(i int) []byte { return fmt.Appendf(nil, "watched%d", i) }

// Drive implements Workload.
func (w *Watched) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(watched)
	for n := uint64(1); number < w.Keys; n++ {
		if !w.count(ctx, run, ks, number, n, random) {
			return
		}
	}
	for run.Rest(ctx, random, w.ReadPause) {
		limit := 100 * time.Millisecond
		if number%2 == 0 {
			limit = 10 * time.Second
		}
		attempt, cancel := context.WithTimeout(ctx, limit)
		err := w.read(attempt, run, ks, random.IntN(w.Keys))
		cancel()
		run.Count("watched read", err)
	}
}

// count increments a key to n, however long that takes. A late duplicate of the swap finds another
// value, and does nothing.
func (w *Watched) count(ctx context.Context, run *driver.Run, ks *driver.Keyspace, i int, n uint64,
	random *rand.Rand) bool {
	w.known[i].BeginWrite(n)
	expect := kv.ExpectAbsent()
	if n > 1 {
		expect = kv.ExpectValue(strconv.AppendUint(nil, n-1, 10))
	}
	for run.Rest(ctx, random, w.Pause) {
		attempt, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		swap, err := ks.CompareAndSwap(attempt, w.key(i), expect,
			kv.Set(strconv.AppendUint(nil, n, 10)))
		cancel()
		run.Count("watched write", err)
		if err != nil {
			continue
		}
		if !swap.Swapped && string(swap.Current.Value) != strconv.FormatUint(n, 10) {
			run.Violation("watched key %d: its only writer swaps %d in, and finds %q", i, n,
				swap.Current.Value)
			return false
		}
		w.known[i].Wrote(n)
		return true
	}
	return false
}

func (w *Watched) read(ctx context.Context, run *driver.Run, ks *driver.Keyspace, i int) error {
	floor := w.known[i].Known()
	var n uint64
	pair, err := ks.Get(ctx, w.key(i))
	if err == nil {
		n, err = strconv.ParseUint(string(pair.Value), 10, 64)
	}
	if err := driver.IgnoreNotFound(err); err != nil {
		return err
	}
	if err := w.known[i].Read(floor, n); err != nil {
		run.Violation("watched key %d: %v", i, err)
	}
	return nil
}

// Check implements Workload.
func (w *Watched) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	var errs []error
	for i := range w.known {
		errs = append(errs, w.read(ctx, run, client.Keyspace(watched), i))
	}
	return errors.Join(errs...)
}

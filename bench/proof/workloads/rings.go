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

// Rings checks that a read over several partitions reads at one timestamp. A writer goes round a
// ring of keys in different partitions and increments each key, the next key only when the write
// before is acknowledged. So at any timestamp the numbers, in the order of the ring, never
// increase, and differ by at most one. Scans, batches of gets, and a later repetition of a scan at
// the same timestamp must all see such numbers. No read may see less than what was known when it
// began.
type Rings struct {
	// Writers is the number of rings, each with one writer. Readers is the number of clients that
	// read all rings. Size is the number of keys of a ring.
	Writers, Readers, Size int
	// Pause is the longest rest of a writer between two writes, and ReadPause the longest rest of a
	// reader.
	Pause, ReadPause time.Duration
	// Keyspace is the name of the keyspace, which Setup creates.
	Keyspace string

	known [][]history.Monotonic
}

// Name implements Workload.
func (r *Rings) Name() string { return r.Keyspace }

// Clients implements Workload.
func (r *Rings) Clients() int { return r.Writers + r.Readers }

// Setup implements Workload.
func (r *Rings) Setup(ctx context.Context, run *driver.Run) error {
	r.known = make([][]history.Monotonic, r.Writers)
	for i := range r.known {
		r.known[i] = make([]history.Monotonic, r.Size)
	}
	// Nine partitions, so that a node leads several of them, and reads them together.
	return run.CreateKeyspace(ctx, r.Keyspace, kv.Hash(9))
}

func (r *Rings) key(ring, i int) []byte { return fmt.Appendf(nil, "ring%d/%d", ring, i) }

// Drive implements Workload.
func (r *Rings) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(r.Keyspace)
	if number < r.Writers {
		for n := uint64(1); ; n++ {
			for i := range r.Size {
				if !r.set(ctx, run, ks, number, i, n, random) {
					return
				}
			}
		}
	}
	for run.Rest(ctx, random, r.ReadPause) {
		r.read(ctx, run, client, ks, random)
	}
}

// set increments a key to n, however long that takes. A late duplicate of the swap finds another
// value, and does nothing.
func (r *Rings) set(ctx context.Context, run *driver.Run, ks *driver.Keyspace, ring, i int,
	n uint64, random *rand.Rand) bool {
	r.known[ring][i].BeginWrite(n)
	for run.Rest(ctx, random, r.Pause) {
		expect := kv.ExpectAbsent()
		if n > 1 {
			expect = kv.ExpectValue(strconv.AppendUint(nil, n-1, 10))
		}
		attempt, cancel := driver.Patience(ctx, random)
		swap, err := ks.CompareAndSwap(attempt, r.key(ring, i), expect,
			kv.Set(strconv.AppendUint(nil, n, 10)))
		cancel()
		run.Count("ring set", err)
		if err != nil {
			continue
		}
		if !swap.Swapped && string(swap.Current.Value) != strconv.FormatUint(n, 10) {
			run.Violation(r.Keyspace+": ring %d, key %d: its only writer swaps %d in, and finds %q",
				ring, i, n, swap.Current.Value)
			return false
		}
		r.known[ring][i].Wrote(n)
		return true
	}
	return false
}

// read reads a ring in one of several ways.
func (r *Rings) read(ctx context.Context, run *driver.Run, client *driver.Client,
	ks *driver.Keyspace, random *rand.Rand) {
	ring := random.IntN(r.Writers)
	floors := make([]uint64, r.Size)
	for i := range floors {
		floors[i] = r.known[ring][i].Known()
	}
	attempt, cancel := driver.Patience(ctx, random)
	defer cancel()
	var numbers []uint64
	var err error
	how := "scan"
	switch random.IntN(4) {
	case 0:
		how = "batch-get"
		numbers, err = r.batchGet(attempt, ks, ring)
	case 1:
		how = "scan at a timestamp"
		at := client.Timestamp()
		if at.IsZero() {
			return
		}
		clear(floors) // other clients may know of writes above this timestamp
		if numbers, err = r.scan(attempt, scanAt(ks, at), ring, random); err != nil {
			break
		}
		if !run.Rest(ctx, random, 3*time.Second) {
			return
		}
		again, cancel := driver.Patience(ctx, random)
		repeated, err := r.scan(again, scanAt(ks, at), ring, random)
		cancel()
		run.Count("repeated scan", err)
		if err == nil && fmt.Sprint(repeated) != fmt.Sprint(numbers) {
			run.Violation(r.Keyspace+": ring %d at %v was %v, and later, at the same timestamp, %v",
				ring, at, numbers, repeated)
		}
	default:
		numbers, err = r.scan(attempt, ks.Scan, ring, random)
	}
	run.Count(how, err)
	if err == nil {
		r.check(run, how, ring, floors, numbers)
	}
}

func (r *Rings) batchGet(ctx context.Context, ks *driver.Keyspace, ring int) ([]uint64, error) {
	keys := make([][]byte, r.Size)
	for i := range keys {
		keys[i] = r.key(ring, i)
	}
	pairs, err := ks.BatchGet(ctx, keys)
	if err != nil {
		return nil, err
	}
	numbers := make([]uint64, r.Size)
	for i, p := range pairs {
		if p.Exists() {
			if numbers[i], err = strconv.ParseUint(string(p.Value), 10, 64); err != nil {
				return nil, err
			}
		}
	}
	return numbers, nil
}

func (r *Rings) scan(ctx context.Context, scan scanning, ring int, random *rand.Rand) ([]uint64,
	error) {
	numbers := make([]uint64, r.Size)
	options := append([]kv.ScanOption(nil), kv.Prefix(fmt.Appendf(nil, "ring%d/", ring)),
		kv.PageSize(1+random.IntN(3)))
	if random.IntN(2) == 0 {
		options = append(options, kv.Reverse())
	}
	for pair, err := range scan(ctx, options...) {
		if err != nil {
			return nil, err
		}
		var at, i int
		if n, err := fmt.Sscanf(string(pair.Key), "ring%d/%d", &at, &i); n != 2 || err != nil ||
			at != ring || i >= r.Size {
			return nil, fmt.Errorf("a key that no client wrote: %q", pair.Key)
		}
		if numbers[i], err = strconv.ParseUint(string(pair.Value), 10, 64); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

func (r *Rings) check(run *driver.Run, how string, ring int, floors, numbers []uint64) {
	for i, n := range numbers {
		if err := r.known[ring][i].Read(floors[i], n); err != nil {
			run.Violation(r.Keyspace+": %s of ring %d, key %d: %v (all: %v, known when it "+
				"began: %v)", how, ring, i, err, numbers, floors)
		}
		if n > numbers[0] || i > 0 && n > numbers[i-1] || n+1 < numbers[0] {
			run.Violation(r.Keyspace+": %s of ring %d saw no single moment: %v", how, ring, numbers)
			return
		}
	}
}

// Check implements Workload.
func (r *Rings) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	var errs []error
	random := rand.New(rand.NewPCG(1, 2))
	for ring := range r.known {
		floors := make([]uint64, r.Size)
		for i := range floors {
			floors[i] = r.known[ring][i].Known()
		}
		numbers, err := r.scan(ctx, client.Keyspace(r.Keyspace).Scan, ring, random)
		if err != nil {
			errs = append(errs, fmt.Errorf("ring %d: %w", ring, err))
			continue
		}
		r.check(run, "the last scan", ring, floors, numbers)
	}
	return errors.Join(errs...)
}

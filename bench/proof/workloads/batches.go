package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Batches writes all keys of a group in one batch with one value, or deletes all of them. A reader
// of a group sees either all keys, with one value and one version, or no key. A value always has
// the same version. The last group is sometimes deleted by a range deletion, which is atomic only
// within a partition. A partition may have split within the group, so a reader may see a part of
// the last group. An acknowledged batch is there as of its version, and not yet directly below that
// version. The writer reads at both timestamps, also after later batches have overwritten the
// group.
type Batches struct {
	Groups, Size, Parallel int
	Pause                  time.Duration

	versions memory
}

// version compares the version of a value with the version remembered for the value.
func (b *Batches) version(run *driver.Run, value []byte, version kv.Timestamp) {
	name, _, _ := strings.Cut(string(value), " ")
	if known := b.versions.remember(name, version); known != version {
		run.Violation("batch %s, written once, has version %v and version %v", name, known, version)
	}
}

// Name implements Workload.
func (*Batches) Name() string { return "batches" }

// Clients implements Workload.
func (b *Batches) Clients() int { return b.Parallel }

// Setup implements Workload.
func (b *Batches) Setup(ctx context.Context, run *driver.Run) error {
	return run.CreateKeyspace(ctx, "batches", kv.Range([]byte("g2"), []byte("g4")))
}

func (b *Batches) prefix(group int) []byte { return fmt.Appendf(nil, "g%d/", group) }

// Drive implements Workload.
func (b *Batches) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace("batches")
	for n := 0; run.Rest(ctx, random, b.Pause); n++ {
		group := random.IntN(b.Groups)
		attempt, cancel := driver.Patience(ctx, random)
		switch kind := random.IntN(20); {
		case kind < 8:
			err := b.look(attempt, run, ks, group, random)
			run.Count("batch look", err)
		case kind == 19:
			group = b.Groups - 1
			_, err := ks.DeleteRange(attempt, kv.Prefix(b.prefix(group)))
			run.Count("range deletion", err)
		default:
			batch := ks.Batch()
			// Large enough that a lagging follower soon needs a snapshot.
			value := fmt.Appendf(nil, "%d.%d %0*d", number, n, 200+random.IntN(2000), 0)
			for i := range b.Size {
				key := fmt.Appendf(b.prefix(group), "%d", i)
				if kind < 11 {
					batch.Delete(key)
				} else {
					batch.Put(key, value)
				}
			}
			version, err := ks.Commit(attempt, batch)
			run.Count("batch", err)
			if err == nil && kind >= 11 {
				b.version(run, value, version)
				run.Count("batch audit", b.audit(attempt, run, ks, group, value, version))
			}
		}
		cancel()
	}
}

// look reads a group and checks that it is whole.
func (b *Batches) look(ctx context.Context, run *driver.Run, ks *driver.Keyspace, group int,
	random *rand.Rand) error {
	var pairs []kv.Pair
	if random.IntN(3) == 0 {
		keys := make([][]byte, b.Size)
		for i := range keys {
			keys[i] = fmt.Appendf(b.prefix(group), "%d", i)
		}
		all, err := ks.BatchGet(ctx, keys)
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Exists() {
				pairs = append(pairs, p)
			}
		}
	} else {
		options := []kv.ScanOption{kv.Prefix(b.prefix(group))}
		if random.IntN(2) == 0 {
			options = append(options, kv.PageSize(2))
		}
		for pair, err := range ks.Scan(ctx, options...) {
			if err != nil {
				return err
			}
			pairs = append(pairs, pair)
		}
	}
	b.whole(run, group, pairs)
	return nil
}

// audit reads the group as of the version of an acknowledged batch, and directly below it.
func (b *Batches) audit(ctx context.Context, run *driver.Run, ks *driver.Keyspace, group int,
	value []byte, version kv.Timestamp) error {
	for _, at := range []kv.Timestamp{version, version.Prev()} {
		n := 0
		for pair, err := range ks.ScanAt(ctx, at, kv.Prefix(b.prefix(group))) {
			if err != nil {
				return err
			}
			if string(pair.Value) == string(value) {
				n++
			}
		}
		if want := b.Size; at == version && n != want || at != version && n != 0 {
			run.Violation("group %d: of a batch of %d keys acknowledged with version %v, %d are "+
				"there as of %v", group, want, version, n, at)
		}
	}
	return nil
}

func (b *Batches) whole(run *driver.Run, group int, pairs []kv.Pair) {
	if len(pairs) == 0 {
		return
	}
	if len(pairs) != b.Size && group != b.Groups-1 {
		run.Violation("group %d: %d of %d keys of a batch are there", group, len(pairs), b.Size)
		return
	}
	for _, p := range pairs[1:] {
		if p.Version != pairs[0].Version || string(p.Value) != string(pairs[0].Value) {
			run.Violation("group %d: %q of %v beside %q of %v", group, pairs[0].Key,
				pairs[0].Version, p.Key, p.Version)
			return
		}
	}
	b.version(run, pairs[0].Value, pairs[0].Version)
}

// Check implements Workload.
func (b *Batches) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	var errs []error
	random := rand.New(rand.NewPCG(1, 2))
	for group := range b.Groups {
		errs = append(errs, b.look(ctx, run, client.Keyspace("batches"), group, random))
	}
	return errors.Join(errs...)
}

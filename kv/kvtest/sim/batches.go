package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// Batches writes all keys of a group in one batch with one value, or deletes them all, and sometimes deletes the group by a
// range deletion; all keys of a group lie in one partition. Whoever reads a group, however, sees all of its keys with one
// value and one version, or none.
type Batches struct {
	Groups, Size, Parallel int
	Pause                  time.Duration
}

// Name implements Workload.
func (*Batches) Name() string { return "batches" }

// Clients implements Workload.
func (b *Batches) Clients() int { return b.Parallel }

// Setup implements Workload.
func (b *Batches) Setup(ctx context.Context, w *World) error {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.CreateKeyspace(ctx, "batches", kv.Range([]byte("g2"), []byte("g4")))
	return err
}

func (b *Batches) prefix(group int) []byte { return fmt.Appendf(nil, "g%d/", group) }

// Drive implements Workload.
func (b *Batches) Drive(ctx context.Context, w *World, number int, client *kv.Client, random *rand.Rand) {
	ks := client.Keyspace("batches")
	for n := 0; rest(ctx, random, b.Pause); n++ {
		group := random.IntN(b.Groups)
		attempt, cancel := patience(ctx, random)
		switch kind := random.IntN(20); {
		case kind < 8:
			err := b.look(attempt, w, ks, group, random)
			w.Count("batch look", err)
		case kind == 19:
			_, err := ks.DeleteRange(attempt, kv.Prefix(b.prefix(group)))
			w.Count("range deletion", err)
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
			_, err := batch.Commit(attempt)
			w.Count("batch", err)
		}
		cancel()
	}
}

// look reads a group and checks that it is whole.
func (b *Batches) look(ctx context.Context, w *World, ks *kv.Keyspace, group int, random *rand.Rand) error {
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
	b.whole(w, group, pairs)
	return nil
}

func (b *Batches) whole(w *World, group int, pairs []kv.Pair) {
	if len(pairs) == 0 {
		return
	}
	if len(pairs) != b.Size {
		w.Violation("group %d: %d of %d keys of a batch are there", group, len(pairs), b.Size)
		return
	}
	for _, p := range pairs[1:] {
		if p.Version != pairs[0].Version || string(p.Value) != string(pairs[0].Value) {
			w.Violation("group %d: %q of %v beside %q of %v", group, pairs[0].Key, pairs[0].Version, p.Key, p.Version)
			return
		}
	}
}

// Check implements Workload.
func (b *Batches) Check(ctx context.Context, w *World, client *kv.Client) error {
	var errs []error
	random := rand.New(rand.NewPCG(1, 2))
	for group := range b.Groups {
		errs = append(errs, b.look(ctx, w, client.Keyspace("batches"), group, random))
	}
	return errors.Join(errs...)
}

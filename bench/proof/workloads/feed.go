package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Feed writes keys, one by one and in transactions, and follows the changes. The versions of a key
// come in their order, each once, and none at or below a progress after it; the changes up to a
// progress make what a scan at that timestamp finds; and each write that was acknowledged is among
// them, also when another one has overwritten it since. A feed is left and begun again at its last
// progress all the time, at times after a while.
type Feed struct {
	Keyspace string
	Layout   []kv.KeyspaceOption
	// Writers write Keys, Followers follow.
	Writers, Keys, Followers int
	Pause                    time.Duration
	// Rest is the longest time for which a follower does not follow now and then. Forgets: the
	// keyspace's GC window may be shorter than that, and then it has to begin anew.
	Rest    time.Duration
	Forgets bool

	mu struct {
		sync.Mutex
		// acked are the last writes that were acknowledged; dropped counts those before them.
		acked   []ackedWrite
		dropped int
	}
}

// ackedWrite is a write of a key that was acknowledged.
type ackedWrite struct {
	key string
	at  kv.Timestamp
}

// mostAcked is how many acknowledged writes are remembered.
const mostAcked = 20_000

const (
	fedPrefix = "fed/"
	// followPatience is how long some progresses may take, in calm.
	followPatience = 30 * time.Second
)

// Name implements Workload.
func (f *Feed) Name() string { return f.Keyspace }

// Clients implements Workload.
func (f *Feed) Clients() int { return f.Writers + f.Followers }

// Setup implements Workload.
func (f *Feed) Setup(ctx context.Context, run *driver.Run) error {
	return run.CreateKeyspace(ctx, f.Keyspace, f.Layout...)
}

func (f *Feed) key(n int) string { return fmt.Sprintf("%s%03d", fedPrefix, n) }

// Drive implements Workload.
func (f *Feed) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	if number < f.Writers {
		for n := 0; run.Keep(ctx, random, f.Pause); n++ {
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			run.Count("fed write", f.write(attempt, client, fmt.Sprintf("%d.%d", number, n), random))
			cancel()
		}
		return
	}
	w := f.follower(run, client, random)
	for run.Keep(ctx, random, f.Pause) {
		if random.IntN(6) == 0 && !run.Keep(ctx, random, f.Rest) {
			return
		}
		attempt, cancel := context.WithTimeout(ctx, followPatience)
		ended := client.Report(attempt, "follow")
		progresses := 1 + random.IntN(8)
		err := w.follow(attempt, func() bool { progresses--; return progresses == 0 })
		cancel()
		if err != nil && ctx.Err() != nil {
			return // the run is over
		}
		run.Count("feed", err)
		ended(err)
	}
}

func (f *Feed) follower(run *driver.Run, client *driver.Client, random *rand.Rand) *follower {
	return &follower{of: f, run: run, ks: client.Keyspace(f.Keyspace).SDK(), random: random}
}

// Check implements Workload: in the end a feed tells what is written.
func (f *Feed) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	w := f.follower(run, client, rand.New(rand.NewPCG(1, 1)))
	if err := w.begin(ctx); err != nil {
		return fmt.Errorf("%s: a feed that begins: %w", f.Keyspace, err)
	}
	at, err := w.ks.Put(ctx, []byte(f.key(0)), []byte("the last"))
	if err != nil {
		return err
	}
	f.acked(f.key(0), at)
	if err := w.follow(ctx, func() bool { return at.LessEq(w.progress) }); err != nil {
		return fmt.Errorf("%s: a feed up to %s: %w", f.Keyspace, at, err)
	}
	return w.compare(ctx)
}

// write writes a key, or several.
func (f *Feed) write(ctx context.Context, client *driver.Client, value string,
	random *rand.Rand) error {
	ks := client.Keyspace(f.Keyspace)
	key := f.key(random.IntN(f.Keys))
	switch random.IntN(8) {
	case 0:
		_, err := ks.Delete(ctx, []byte(key))
		return err
	case 1, 2:
		other := f.key(random.IntN(f.Keys))
		at, err := client.Update(ctx, "update", func(tx *kv.Txn) error {
			return errors.Join(tx.Put(ks.SDK(), []byte(key), []byte(value)),
				tx.Put(ks.SDK(), []byte(other), []byte(value)))
		})
		if err == nil {
			f.acked(key, at)
			f.acked(other, at)
		}
		return err
	}
	at, err := ks.Put(ctx, []byte(key), []byte(value))
	if err == nil {
		f.acked(key, at)
	}
	return err
}

func (f *Feed) acked(key string, at kv.Timestamp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.acked = append(f.mu.acked, ackedWrite{key, at}); len(f.mu.acked) >= 2*mostAcked {
		f.mu.acked = slices.Delete(f.mu.acked, 0, mostAcked)
		f.mu.dropped += mostAcked
	}
}

// since are the acknowledged writes from a number on, and the number of the next one.
func (f *Feed) since(n int) (acked []ackedWrite, next int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.acked[min(max(0, n-f.mu.dropped), len(f.mu.acked)):]),
		f.mu.dropped + len(f.mu.acked)
}

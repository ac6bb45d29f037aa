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

// Feed writes keys, one by one and in transactions, and follows their changes. The versions of a
// key come in order, each once, and no version at or below a progress timestamp comes after it. The
// changes up to a progress timestamp make the same state as a scan at that timestamp. Every
// acknowledged write is among the changes, even if a later write has overwritten it. Followers stop
// and resume at their last progress again and again, sometimes after a long rest.
type Feed struct {
	Keyspace string
	Layout   []kv.KeyspaceOption
	// Writers is the number of clients that write, and Followers the number of clients that follow.
	// Keys is the number of keys.
	Writers, Keys, Followers int
	Pause                    time.Duration
	// Rest is the longest time for which a follower stops now and then. Forgets: the keyspace's GC
	// window may be shorter than Rest; then the follower has to start anew.
	Rest    time.Duration
	Forgets bool

	mu struct {
		sync.Mutex
		// acked has the last acknowledged writes; dropped is the number of earlier acknowledged
		// writes.
		acked   []ackedWrite
		dropped int
	}
}

// ackedWrite is a write of a key that was acknowledged.
type ackedWrite struct {
	key string
	at  kv.Timestamp
}

// mostAcked is the number of acknowledged writes that are remembered.
const mostAcked = 20_000

const (
	fedPrefix = "fed/"
	// followPatience is the longest time for a few progress events, in calm.
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

// Check implements Workload: at the end a follower must see everything that is written.
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

// write writes one key, or several in a transaction.
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

// since returns the acknowledged writes from number n on, and the number of the next one.
func (f *Feed) since(n int) (acked []ackedWrite, next int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.acked[min(max(0, n-f.mu.dropped), len(f.mu.acked)):]),
		f.mu.dropped + len(f.mu.acked)
}

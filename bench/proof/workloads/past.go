package workloads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
)

// Past reads keys at a timestamp, and reads them again later at the same timestamp. The answers
// must stay the same for ever, so no write may get a version below a timestamp that was read. Each
// key has its own partition, one writer and a few readers. Writers and readers talk to no other
// client and share no session: a writer that knew the readers' timestamps would hide the mistake.
// Keys are written rarely and read often, so that the leader is bound by its reads and not by its
// writes.
type Past struct {
	// Keys is the number of keys. Each key has one writer and Readers readers.
	Keys, Readers int
	// Pause is the longest rest of a writer, and ReadPause the longest rest of a reader.
	Pause, ReadPause time.Duration

	keys []pastKey
}

// pastKey is what all clients together know of a key.
type pastKey struct {
	mu struct {
		sync.Mutex
		// read is the latest timestamp at which a client has read the key.
		read kv.Timestamp
	}
}

// pastRead is a read that is repeated later.
type pastRead struct {
	at      kv.Timestamp
	present bool
	value   string
	version kv.Timestamp
	when    time.Duration
}

const (
	past = "past"
	// pastReads is the number of reads that a reader keeps to repeat them. Reads older than maxPast
	// are dropped.
	pastReads, maxPast = 64, 5 * time.Minute
)

// Name implements Workload.
func (*Past) Name() string { return past }

// Clients implements Workload.
func (p *Past) Clients() int { return p.Keys * (1 + p.Readers) }

// Setup implements Workload.
func (p *Past) Setup(ctx context.Context, run *driver.Run) error {
	p.keys = make([]pastKey, p.Keys)
	var splits [][]byte
	for i := 1; i < p.Keys; i++ {
		splits = append(splits, p.key(i))
	}
	return run.CreateKeyspace(ctx, past, kv.Range(splits...))
}

func (p *Past) key(i int) []byte { return fmt.Appendf(nil, "past%02d", i) }

// Drive implements Workload.
func (p *Past) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks, i := client.Keyspace(past), number%p.Keys
	if number < p.Keys {
		for n := 0; run.Rest(ctx, random, p.Pause); n++ {
			attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
			err := p.write(attempt, run, ks, i, fmt.Sprintf("%d.%d", number, n))
			cancel()
			run.Count("past write", err)
		}
		return
	}
	var kept []pastRead
	for run.Rest(ctx, random, p.ReadPause) {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		if len(kept) > 0 && random.IntN(3) == 0 {
			n := random.IntN(len(kept))
			run.Count("past read again", p.repeat(attempt, run, ks, i, kept[n]))
			if len(kept) == pastReads || run.Elapsed()-kept[n].when > maxPast {
				kept = append(kept[:n], kept[n+1:]...)
			}
		} else {
			r, err := p.read(attempt, run, client, ks, i)
			run.Count("past read", err)
			if err == nil && len(kept) < pastReads {
				kept = append(kept, r)
			}
		}
		cancel()
	}
}

// write checks that the write's version lies above every timestamp at which the key had been read
// when the write began.
func (p *Past) write(ctx context.Context, run *driver.Run, ks *driver.Keyspace, i int,
	value string) error {
	key := &p.keys[i]
	key.mu.Lock()
	read := key.mu.read
	key.mu.Unlock()
	version, err := ks.Put(ctx, p.key(i), []byte(value))
	if err == nil && version.LessEq(read) {
		run.Violation("past key %d: a write got version %v, and the key had been read as of %v "+
			"before it began", i, version, read)
	}
	return err
}

// read reads the latest value, which gives a timestamp, and then reads the value at that timestamp.
func (p *Past) read(ctx context.Context, run *driver.Run, client *driver.Client,
	ks *driver.Keyspace, i int) (pastRead, error) {
	latest, err := ks.Get(ctx, p.key(i))
	if err := driver.IgnoreNotFound(err); err != nil {
		return pastRead{}, err
	}
	at := client.Timestamp()
	r, err := p.readAt(ctx, run, ks, i, at)
	if err != nil {
		return pastRead{}, err
	}
	if r.version.Less(latest.Version) {
		run.Violation("past key %d: the client has seen version %v, and as of its timestamp %v "+
			"it finds %v", i, latest.Version, at, r.version)
	}
	key := &p.keys[i]
	key.mu.Lock()
	defer key.mu.Unlock()
	if key.mu.read.Less(at) {
		key.mu.read = at
	}
	return r, nil
}

func (p *Past) readAt(ctx context.Context, run *driver.Run, ks *driver.Keyspace, i int,
	at kv.Timestamp) (pastRead, error) {
	pair, err := ks.GetAt(ctx, p.key(i), at)
	if err := driver.IgnoreNotFound(err); err != nil {
		return pastRead{}, err
	}
	if at.Less(pair.Version) {
		run.Violation("past key %d: as of %v it has version %v", i, at, pair.Version)
	}
	return pastRead{at, err == nil, string(pair.Value), pair.Version, run.Elapsed()}, nil
}

func (p *Past) repeat(ctx context.Context, run *driver.Run, ks *driver.Keyspace, i int,
	first pastRead) error {
	again, err := p.readAt(ctx, run, ks, i, first.at)
	if err != nil {
		return err
	}
	if again.present != first.present || again.value != first.value ||
		again.version != first.version {
		run.Violation("past key %d as of %v was %s of %v, and is now %s of %v", i, first.at,
			describe(first.present, first.value), first.version, describe(again.present,
				again.value), again.version)
	}
	return nil
}

// Check implements Workload.
func (p *Past) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	var errs []error
	ks := client.Keyspace(past)
	for i := range p.keys {
		first, err := p.read(ctx, run, client, ks, i)
		if err == nil {
			err = errors.Join(p.write(ctx, run, ks, i, "the last"), p.repeat(ctx, run, ks, i,
				first))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

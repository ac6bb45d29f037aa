package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/console"
	"github.com/tidemarkdb/tidemark/kv"
)

const (
	// keyspace is the keyspace that the load reads and writes.
	keyspace = "demo"
	// clients is the number of concurrent clients. Each pauses after an operation, so that together
	// they do some hundred operations per second and leave capacity of the machine to its user.
	clients = 16
	rest    = 15 * time.Millisecond
	// accounts is the number of keys. The keyspace is split into several parts.
	accounts = 8000
	splits   = 16
	// wave is the time for which the load uses one part of the keys before it moves to the next.
	wave = 20 * time.Second
	// lately is the number of seconds over which the slowest operation and the rate are computed.
	lately = 5
)

// load has clients that read and write, and counts their operations.
type load struct {
	client  *kv.Client
	cancel  context.CancelFunc
	running sync.WaitGroup
	began   time.Time

	mu     sync.Mutex
	failed uint64
	// seconds has the counts of the last seconds, each at its Unix time modulo the number of elements.
	seconds [lately + 2]second
}

type second struct {
	unix    int64
	done    uint64
	slowest time.Duration
}

// startLoad makes the keyspace and begins. The load closes the client when it stops.
func startLoad(ctx context.Context, client *kv.Client) (*load, error) {
	var at [][]byte
	for i := 1; i < splits; i++ {
		at = append(at, account(i*accounts/splits))
	}
	ks, _, err := client.CreateKeyspaceIfMissing(ctx, keyspace, kv.Range(at...))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{client: client, cancel: cancel, began: time.Now()}
	for range clients {
		l.running.Go(func() { l.work(ctx, ks) })
	}
	return l, nil
}

func account(n int) []byte { return fmt.Appendf(nil, "account/%04d", n) }

// work does one operation after the other until the context ends.
func (l *load) work(ctx context.Context, ks *kv.Keyspace) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		began := time.Now()
		err := l.operation(ctx, ks, began)
		if ctx.Err() != nil {
			return
		}
		l.count(began, time.Since(began), err)
		pause.Reset(rest/2 + rand.N(rest))
	}
}

// operation reads, writes, or moves an amount between two keys in a transaction.
func (l *load) operation(ctx context.Context, ks *kv.Keyspace, now time.Time) error {
	a := l.choose(now)
	switch kind := rand.N(10); {
	case kind < 5:
		_, err := ks.Get(ctx, a)
		if errors.Is(err, kv.ErrNotFound) {
			return nil
		}
		return err
	case kind < 9:
		_, err := ks.Put(ctx, a, fmt.Appendf(nil, "%0100d", now.UnixNano()))
		return err
	}
	b := l.choose(now)
	_, err := l.client.Update(ctx, func(tx *kv.Txn) error {
		for _, key := range [][]byte{a, b} {
			if err := tx.Put(ks, key, fmt.Appendf(nil, "%0100d", now.UnixNano())); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// choose chooses a key. Most keys are from one part of the keyspace, which changes with each wave.
func (l *load) choose(now time.Time) []byte {
	if rand.N(10) < 3 {
		return account(rand.N(accounts))
	}
	const part = accounts / splits
	at := int(now.Sub(l.began)/wave) % splits
	return account((at*part + rand.N(part*2)) % accounts)
}

func (l *load) count(began time.Time, took time.Duration, err error) {
	unix := began.Add(took).Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.seconds[unix%int64(len(l.seconds))]
	if s.unix != unix {
		*s = second{unix: unix}
	}
	if err != nil {
		l.failed++
	} else {
		s.done++
	}
	s.slowest = max(s.slowest, took)
}

// state returns the state of the load.
func (l *load) state() console.DemoLoad {
	now := time.Now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	view := console.DemoLoad{Running: true, Failed: l.failed}
	whole := uint64(0)
	for _, s := range l.seconds {
		if s.unix < now-lately || s.unix > now {
			continue
		}
		view.SlowestMillis = max(view.SlowestMillis, uint64(s.slowest.Milliseconds()))
		if s.unix < now { // the present second is not over
			view.Done += s.done
			whole++
		}
	}
	view.Done /= max(whole, 1)
	return view
}

// stop ends all clients, and waits for them.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
	_ = l.client.Close()
}

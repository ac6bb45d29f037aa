package coordination

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Locks runs clients that hold a lock in turn, and write to a keyspace behind a fence. At any true
// time at most one client believes that it holds the lock, apart from errors of clocks (drift). A
// later holder has a higher token. The fence refuses writes of a holder with a lower token after a
// write with a higher token. The key of a lock is gone only with its session.
type Locks struct {
	Parallel int
	Pause    time.Duration

	mu struct {
		sync.Mutex
		holders map[*coord.Lock]bool
		// token is the highest token of any holder.
		token coord.Token
	}
}

// lockPatience is how long a client waits for the lock. In calm it is longer than all clients that
// were there when the calm began can hold the lock or wait for it.
const lockPatience = 20 * time.Second

// Name implements Workload.
func (*Locks) Name() string { return "etcd-locks" }

// Clients implements Workload.
func (l *Locks) Clients() int { return l.Parallel }

// Setup implements Workload.
func (l *Locks) Setup(ctx context.Context, run *driver.Run) error {
	l.mu.holders = make(map[*coord.Lock]bool)
	if err := run.CreateKeyspace(ctx, l.Name(), kv.Hash(1)); err != nil {
		return err
	}
	return available(ctx, run, l.Name())
}

// Drive implements Workload.
func (l *Locks) Drive(ctx context.Context, run *driver.Run, number int, keyspaces *driver.Client,
	random *rand.Rand) {
	client, err := connect(ctx, run, l.Name())
	if err != nil {
		run.Violation("%s: connecting: %v", l.Name(), err)
		return
	}
	defer client.hangUp()
	var session *coord.Session
	defer func() { closeSession(session) }()
	for n := 0; run.Rest(ctx, random, l.Pause); n++ {
		if session == nil || session.Err() != nil {
			closeSession(session)
			if session, err = begin(ctx, run, client); err != nil {
				continue
			}
		}
		attempt, cancel := context.WithTimeout(ctx, lockPatience)
		ended := client.Report(attempt, "lock")
		lock, err := client.recipes.Mutex("one").Lock(attempt, session)
		ended(plain(err))
		run.Count("lock", plain(err))
		cancel()
		if lock != nil {
			l.hold(ctx, run, client, keyspaces, lock, fmt.Sprintf("%d.%d", number, n), random)
		}
	}
}

// begin starts a session.
func begin(ctx context.Context, run *driver.Run, client connected) (*coord.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	ended := client.Report(ctx, "session")
	session, err := client.recipes.NewSession(ctx, coord.TTL(ttl))
	ended(plain(err))
	run.Count("session", plain(err))
	return session, err
}

// closeSession ends a session, so that its goroutines end.
func closeSession(s *coord.Session) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	_ = s.Close(ctx)
}

// hold holds the lock for a while, and writes.
func (l *Locks) hold(ctx context.Context, run *driver.Run, client connected,
	keyspaces *driver.Client, lock *coord.Lock, value string, random *rand.Rand) {
	l.enter(ctx, run, lock)
	written := l.write(ctx, run, keyspaces, lock, value)
	_ = pause(ctx, time.Duration(random.Int64N(int64(200*time.Millisecond))))
	before := lock.Err()
	l.mu.Lock()
	delete(l.mu.holders, lock)
	l.mu.Unlock()
	attempt, cancel := context.WithTimeout(ctx, 5*attemptTimeout)
	defer cancel()
	ended := client.Report(attempt, "unlock")
	err := lock.Unlock(attempt)
	if err != nil && before != nil {
		ended(nil) // Unlock returns the error that was known before
	} else {
		ended(plain(err))
	}
	run.Count("unlock", plain(err))
	if errors.Is(err, coord.ErrLost) || errors.Is(before, coord.ErrLost) {
		run.Violation("%s: the lock with token %d is gone, and its session is not: %v, %v", l.Name(),
			lock.Token(), before, err)
	}
	if written && random.IntN(3) == 0 && pause(ctx, l.Pause) {
		// The client behaves like a former holder that was paused and has not noticed.
		l.write(ctx, run, keyspaces, lock, value+".late")
	}
}

// enter notes that a client has the lock, and checks that it is the only one.
func (l *Locks) enter(ctx context.Context, run *driver.Run, lock *coord.Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lock.Token() <= l.mu.token {
		run.Violation("%s: a holder has token %d, and one before it had %d", l.Name(), lock.Token(),
			l.mu.token)
	}
	l.mu.token = max(l.mu.token, lock.Token())
	enterAlone(ctx, &l.mu.Mutex, l.mu.holders, lock, func(other *coord.Lock) {
		run.Violation("%s: the holders with tokens %d and %d have the lock at the same time", l.Name(),
			other.Token(), lock.Token())
	})
}

// write writes the lock's token and a value, if the fence allows it. It returns whether it wrote.
func (l *Locks) write(ctx context.Context, run *driver.Run, keyspaces *driver.Client,
	lock *coord.Lock, value string) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*attemptTimeout)
	defer cancel()
	ks := keyspaces.Keyspace(l.Name()).SDK()
	fence := coord.Fence{Keyspace: ks, Name: "one"}
	key := []byte("protected")
	fenced := false
	var before string
	_, err := keyspaces.Update(ctx, "fenced update", func(tx *kv.Txn) error {
		fenced, before = false, ""
		if err := fence.Check(ctx, tx, lock.Token()); errors.Is(err, coord.ErrFenced) {
			fenced = true
			return nil
		} else if err != nil {
			return err
		}
		pair, err := tx.Get(ctx, ks, key)
		if err := driver.IgnoreNotFound(err); err != nil {
			return err
		}
		before = string(pair.Value)
		return tx.Put(ks, key, fmt.Appendf(nil, "%d %s", lock.Token(), value))
	})
	run.Count("fenced update", err)
	if err != nil {
		return false
	}
	l.mu.Lock()
	highest := l.mu.token
	l.mu.Unlock()
	if fenced {
		if highest <= lock.Token() {
			run.Violation("%s: the holder with token %d was refused, and no other has a higher one",
				l.Name(), lock.Token())
		}
		return false
	}
	var token coord.Token
	if _, err := fmt.Sscanf(strings.TrimSpace(before), "%d", &token); err == nil &&
		token > lock.Token() {
		run.Violation("%s: the holder with token %d has overwritten what one with token %d wrote",
			l.Name(), lock.Token(), token)
	}
	return true
}

// Check implements Workload: the last written value has the token of a holder.
func (l *Locks) Check(ctx context.Context, _ *driver.Run, client *driver.Client) error {
	pair, err := client.Keyspace(l.Name()).Get(ctx, []byte("protected"))
	if err := driver.IgnoreNotFound(err); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var token coord.Token
	if _, err := fmt.Sscanf(string(pair.Value), "%d", &token); err == nil && token > l.mu.token {
		return fmt.Errorf("%q is there, and no holder had that token", pair.Value)
	}
	return nil
}

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

// Sessions checks what a client may rely on across partitions. Each of its writes has a higher
// version than all versions that it has seen before, on whatever node and by whatever clock. A
// client finds its own writes, also at its own timestamp. A client that was handed another client's
// timestamp (Observe) sees what the other client had seen.
type Sessions struct {
	// Parallel is the number of clients. Each client has Keys keys, in a keyspace with Partitions
	// hash partitions.
	Parallel, Keys, Partitions int
	Pause                      time.Duration

	mu struct {
		sync.Mutex
		// messages has the last message of each client.
		messages []message
	}
}

// message is what a client tells others: its timestamp, and a key and version that it has written.
type message struct {
	at      kv.Timestamp
	key     []byte
	version kv.Timestamp
}

const sessions = "sessions"

// Name implements Workload.
func (*Sessions) Name() string { return sessions }

// Clients implements Workload.
func (s *Sessions) Clients() int { return s.Parallel }

// Setup implements Workload.
func (s *Sessions) Setup(ctx context.Context, run *driver.Run) error {
	s.mu.messages = make([]message, s.Parallel)
	return run.CreateKeyspace(ctx, sessions, kv.Hash(s.Partitions))
}

func (s *Sessions) key(number, i int) []byte { return fmt.Appendf(nil, "session%d/%d", number, i) }

// Drive implements Workload.
func (s *Sessions) Drive(ctx context.Context, run *driver.Run, number int, client *driver.Client,
	random *rand.Rand) {
	ks := client.Keyspace(sessions)
	for n := 0; run.Rest(ctx, random, s.Pause); n++ {
		attempt, cancel := driver.Patience(ctx, random)
		key, value := s.key(number, random.IntN(s.Keys)), fmt.Sprintf("%d.%d", number, n)
		switch random.IntN(4) {
		case 0:
			run.Count("session handed over", s.receive(attempt, run, client, ks, key, value,
				random))
		case 1:
			run.Count("session read", s.read(attempt, run, client, ks, random))
		default:
			version, err := s.write(attempt, run, client, ks, key, value)
			run.Count("session write", err)
			if err == nil {
				s.mu.Lock()
				s.mu.messages[number] = message{client.Timestamp(), key, version}
				s.mu.Unlock()
			}
		}
		cancel()
	}
}

// write writes a key, checks that the version is higher than everything that the client has seen,
// and reads the key back.
func (s *Sessions) write(ctx context.Context, run *driver.Run, client *driver.Client,
	ks *driver.Keyspace, key []byte,
	value string) (kv.Timestamp, error) {
	before := client.Timestamp()
	version, err := ks.Put(ctx, key, []byte(value))
	if err != nil {
		return version, err
	}
	after := client.Timestamp()
	switch {
	case version.LessEq(before):
		run.Violation("session: the write of %q has version %v, and the client had seen %v before",
			key, version, before)
	case after.Less(version):
		run.Violation("session: the write of %q has version %v, and the client's timestamp is "+
			"%v afterwards", key, version, after)
	}
	return version, s.finds(ctx, run, ks, key, version, after)
}

// finds checks that a key has this version or a newer one: now, and at a timestamp at which the
// version was known to be there.
func (s *Sessions) finds(ctx context.Context, run *driver.Run, ks *driver.Keyspace, key []byte,
	version, at kv.Timestamp) error {
	now, err := ks.Get(ctx, key)
	if err := driver.IgnoreNotFound(err); err != nil {
		return err
	}
	if now.Version.Less(version) {
		run.Violation("session: %q has version %v, and %v was known", key, now.Version, version)
	}
	then, err := ks.GetAt(ctx, key, at)
	if err := driver.IgnoreNotFound(err); err != nil {
		return err
	}
	if then.Version.Less(version) {
		run.Violation("session: as of %v %q has version %v, and %v was known at that moment", at,
			key, then.Version, version)
	}
	return nil
}

// message returns the message of some client; false if that client has none yet.
func (s *Sessions) message(random *rand.Rand) (message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mu.messages[random.IntN(s.Parallel)]
	return m, m.key != nil
}

// receive takes another client's message, and writes.
func (s *Sessions) receive(ctx context.Context, run *driver.Run, client *driver.Client,
	ks *driver.Keyspace, key []byte, value string,
	random *rand.Rand) error {
	m, ok := s.message(random)
	if !ok {
		return nil
	}
	client.Observe(m.at)
	if client.Timestamp().Less(m.at) {
		run.Violation("session: a client that has observed %v is at %v", m.at, client.Timestamp())
	}
	if _, err := s.write(ctx, run, client, ks, key, value); err != nil {
		return err
	}
	return s.finds(ctx, run, ks, m.key, m.version, m.at)
}

// read reads keys of many clients at one timestamp.
func (s *Sessions) read(ctx context.Context, run *driver.Run, client *driver.Client,
	ks *driver.Keyspace, random *rand.Rand) error {
	var keys [][]byte
	var floors []kv.Timestamp
	for range 3 {
		if m, ok := s.message(random); ok {
			keys, floors = append(keys, m.key), append(floors, m.version)
		}
	}
	pairs, err := ks.BatchGet(ctx, keys)
	if err != nil {
		return err
	}
	after := client.Timestamp()
	for i, p := range pairs {
		if p.Version.Less(floors[i]) {
			run.Violation("session: a batch of gets found version %v of %q, and %v had been "+
				"acknowledged before", p.Version, p.Key, floors[i])
		}
		if after.Less(p.Version) {
			run.Violation("session: the client has seen version %v of %q, and is at %v", p.Version,
				p.Key, after)
		}
	}
	return nil
}

// Check implements Workload.
func (s *Sessions) Check(ctx context.Context, run *driver.Run, client *driver.Client) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.mu.messages {
		if m.key != nil {
			errs = append(errs, s.finds(ctx, run, client.Keyspace(sessions), m.key, m.version,
				m.at))
		}
	}
	return errors.Join(errs...)
}

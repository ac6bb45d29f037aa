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

// Sessions checks what a client may rely on across partitions: each of its writes has a higher
// version than all it has seen before, on whatever node and by whatever clock; it finds its own
// writes, also as of its own timestamp; and a client that was handed another one's timestamp
// (Observe) has seen what that one had seen.
type Sessions struct {
	// Parallel is the number of clients, each with so many Keys of its own in so many hash
	// Partitions.
	Parallel, Keys, Partitions int
	Pause                      time.Duration

	mu struct {
		sync.Mutex
		// messages are the last of each client.
		messages []message
	}
}

// message is what a client tells others: it has seen at, and has written this version of this key.
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

// write writes a key and checks that the write comes after all that the client has seen; and finds
// it again.
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

// finds checks that a key, whose versions only grow, has this version or a newer one: now, and as
// of a moment at which it was known to be there.
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

// message is that of some client; false if it has none yet.
func (s *Sessions) message(random *rand.Rand) (message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.mu.messages[random.IntN(s.Parallel)]
	return m, m.key != nil
}

// receive gets another's message and writes.
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

// read reads what many have written, at one moment.
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

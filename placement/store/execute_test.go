package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var errLink = errors.New("the link is down")

// links reaches the members of a core for one of them. fault, if set, says what becomes of a call:
// whether the question and the answer get lost, and whether the question comes twice.
type links struct {
	core  *core
	fault func() (lostQuestion, lostAnswer, twice bool)
	late  sync.WaitGroup
}

// call has the leader asked, as the fault says. The answer to a question that arrives twice, the
// second time late, is that to the first.
func call[A any](
	l *links, leader keys.ReplicaID, ask func(*Store) (A, error),
) (answer A, err error) {
	var lostQuestion, lostAnswer, twice bool
	if l.fault != nil {
		lostQuestion, lostAnswer, twice = l.fault()
	}
	s := l.core.members[leader-1].store
	if twice {
		l.late.Go(func() {
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
			_, _ = ask(s)
		})
	}
	if lostQuestion {
		return answer, errLink
	}
	if answer, err = ask(s); err == nil && lostAnswer {
		err = errLink
	}
	return answer, err
}

func (l *links) Execute(
	ctx context.Context, leader keys.ReplicaID, term uint64, cmd []byte,
) ([]byte, error) {
	return call(l, leader, func(s *Store) ([]byte, error) {
		return s.ServeExecute(ctx, term, cmd)
	})
}

func (l *links) Index(ctx context.Context, leader keys.ReplicaID) (uint64, error) {
	return call(l, leader, func(s *Store) (uint64, error) { return s.ServeIndex(ctx) })
}

func (l *links) RenewAll(
	ctx context.Context, leader keys.ReplicaID, leases []int64,
) ([]time.Duration, error) {
	return call(l, leader, func(s *Store) ([]time.Duration, error) {
		return s.KeepAliveAll(ctx, leases)
	})
}

func (l *links) TimeToLive(
	ctx context.Context, leader keys.ReplicaID, lease int64,
) (time.Duration, error) {
	return call(l, leader, func(s *Store) (time.Duration, error) {
		return s.ServeTimeToLive(ctx, lease)
	})
}

// keepUp has a member apply what is committed, until the function that it returns is called.
func (m *member) keepUp() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				m.catchUp()
			}
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// linked is a core whose members reach each other.
func linked(t *testing.T, members int, change func(*Config)) (*core, *links) {
	l := &links{}
	l.core = newCore(t, members, func(c *Config) {
		c.Peers = l
		if change != nil {
			change(c)
		}
	})
	t.Cleanup(func() {
		l.core.close()
		l.late.Wait()
	})
	return l.core, l
}

// A command executed at a member that does not lead takes effect once, though answers get lost.
func TestExecuteElsewhere(t *testing.T) {
	c, l := linked(t, 3, nil)
	c.elect(c.members[0])
	other := c.members[1].store
	defer c.members[1].keepUp()()
	result, err := other.Execute(t.Context(), writes(Put([]byte("a"), []byte("1"))))
	if err != nil || result.Revision != tables.InitialRevision+1 {
		t.Fatalf("%v, %v", result, err)
	}
	lose := 2
	l.fault = func() (bool, bool, bool) {
		lose--
		return false, lose >= 0, false
	}
	c.members[1].catchUp()
	done := make(chan error, 1)
	go func() {
		_, err := other.Execute(t.Context(), writes(Put([]byte("b"), nil)))
		done <- err
	}()
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			ended = true
		default:
			c.members[1].catchUp()
		}
	}
	l.fault = nil
	if kv, err := c.members[0].store.Stale().Get([]byte("b")); err != nil || kv.GetVersion() != 1 {
		t.Fatalf("%v, %v", kv, err)
	}
	if _, err := other.Execute(t.Context(), If(nil, []*storepb.Op{
		Put([]byte("a"), nil), Put([]byte("a"), nil)}, nil)); !errors.Is(err, command.ErrDuplicateKey) {
		t.Fatal(err)
	}
	if _, err := other.Execute(t.Context(), Compact(1000)); !errors.Is(err,
		command.ErrFutureRevision) {
		t.Fatal(err)
	}
}

// What a member has answered it has applied: its next reads have it, whatever they ask for.
func TestExecutedElsewhereIsAppliedHere(t *testing.T) {
	c, _ := linked(t, 3, nil)
	c.elect(c.members[0])
	other := c.members[1]
	defer other.keepUp()()
	for i := range 200 {
		result, err := other.store.Execute(t.Context(), writes(Put([]byte("a"), nil)))
		if err != nil {
			t.Fatal(err)
		}
		if r := other.store.Revision(); r < result.Revision {
			t.Fatalf("command %d came to revision %d, and the member has %d", i, result.Revision, r)
		}
	}
}

// Without a leader a command waits, and is not proposed.
func TestExecuteWithoutLeader(t *testing.T) {
	c, _ := linked(t, 3, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.members[1].store.Execute(ctx, writes(Put([]byte("a"), nil)))
	if !errors.Is(err, command.ErrNotLeader) || errors.Is(err, command.ErrOutcomeUnknown) {
		t.Fatal(err)
	}
	if c.proposedBytes() > 0 {
		t.Fatal("something was proposed")
	}
}

// Commands at all members, while leaders change, lose their quorum, and messages are lost, doubled
// and late: each takes effect at most once, exactly once if it succeeded, not at all if it was
// refused; and what was acknowledged every later read at every member has.
func TestExecuteUnderFaults(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { executeUnderFaults(t, uint64(seed)) })
		})
	}
}

func executeUnderFaults(t *testing.T, seed uint64) {
	c, l := linked(t, 3, func(config *Config) { config.GroupCommands = seed%2 == 1 })
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 27))
	number := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	l.fault = func() (bool, bool, bool) {
		time.Sleep(time.Duration(number(20)) * time.Millisecond)
		n := number(10)
		return n == 0, n == 1 || n == 2, number(5) == 0
	}
	c.elect(c.members[0])
	stop := make(chan struct{})
	var chaos, clients sync.WaitGroup
	chaos.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(number(60)) * time.Millisecond):
			}
			switch n := number(12); {
			case n == 0:
				c.elect(nil)
			case n <= 3:
				c.setCut(false)
				c.elect(c.members[number(3)])
			case n == 4:
				c.setCut(number(2) == 0)
			case n == 5:
				c.setLags(number(3) > 0)
			default:
				c.members[number(3)].catchUp()
			}
		}
	})
	type done struct {
		key string
		err error
	}
	results := make(chan done, 1000)
	for client := range 6 {
		clients.Go(func() {
			for i := range 15 {
				key := fmt.Sprintf("%d/%d", client, i)
				s := c.members[number(3)].store
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				result, err := s.Execute(ctx, writes(Put([]byte(key), nil)))
				cancel()
				results <- done{key, err}
				if err != nil {
					continue
				}
				ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
				view, err := c.members[number(3)].store.Read(ctx)
				cancel()
				if err != nil {
					continue
				}
				kv, err := view.Get([]byte(key))
				if err != nil {
					t.Errorf("reading %s: %v", key, err)
				} else if kv.GetModRevision() != result.Revision {
					t.Errorf("seed %d: %s was written at revision %d, and a later read at revision %d has %v",
						seed, key, result.Revision, view.Revision, kv)
				}
				ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
				later, err := c.members[number(3)].store.Read(ctx)
				cancel()
				if err == nil && later.Revision < view.Revision {
					t.Errorf("seed %d: a read has revision %d, and a later one %d", seed, view.Revision,
						later.Revision)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	chaos.Wait()
	l.late.Wait()
	c.setCut(false)
	c.setLags(false)
	c.elect(c.members[0])
	close(results)
	unknown := 0
	for r := range results {
		kv, err := c.members[0].store.Stale().Get([]byte(r.key))
		if err != nil {
			t.Fatal(err)
		}
		switch version := kv.GetVersion(); {
		case r.err == nil && version != 1:
			t.Errorf("seed %d: %s was acknowledged and was applied %d times", seed, r.key, version)
		case version > 1:
			t.Errorf("seed %d: %s was applied %d times", seed, r.key, version)
		case r.err != nil && !errors.Is(r.err, command.ErrOutcomeUnknown) && version != 0:
			t.Errorf("seed %d: %s was refused and applied: %v", seed, r.key, r.err)
		case errors.Is(r.err, command.ErrOutcomeUnknown):
			unknown++
		}
	}
	if unknown > 45 {
		t.Errorf("seed %d: the outcome of %d of 90 commands was unknown", seed, unknown)
	}
	for _, m := range c.members {
		if n, _ := m.store.Pending(); n > 0 && m == c.members[0] {
			t.Errorf("seed %d: %d commands are still pending", seed, n)
		}
	}
}

// A leader that was replaced ends no lease, though it has not heard of any renewal since.
func TestFormerLeaderEndsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, _ := linked(t, 3, func(config *Config) {
			config.Monotonic = func() int64 { return int64(time.Since(began)) + 1 }
		})
		c.elect(c.members[0])
		do(t, c.members[0].store, Grant(5, 10_000))
		do(t, c.members[0].store, writes(PutLeased([]byte("leased"), nil, 5)))
		c.members[1].catchUp()
		c.elect(c.members[1])
		for range 20 {
			time.Sleep(3 * time.Second)
			c.members[0].catchUp()
			c.members[2].catchUp()
			if _, err := c.members[2].store.Renew(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
		}
		if got := get(t, c.members[1].store, "leased"); got == "-" {
			t.Error("the lease was renewed, and has ended")
		}
	})
}

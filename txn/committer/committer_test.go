package committer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

func k1(name string) Key { return Key{1, []byte(name)} }
func k2(name string) Key { return Key{2, []byte(name)} }

func put(k Key, value string) Write { return Write{Key: k, Value: []byte(value)} }

// bubble runs f in virtual time with a fake cluster.
func bubble(t *testing.T, seed uint64,
	f func(t *testing.T, ctx context.Context, c *Committer, s *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newFake(t, seed)
		random := rand.New(rand.NewPCG(seed, 9))
		var mu sync.Mutex
		c, err := New(Config{Sender: s, Random: func() uint64 {
			mu.Lock()
			defer mu.Unlock()
			return random.Uint64()
		}})
		if err != nil {
			t.Fatal(err)
		}
		f(t, t.Context(), c, s)
		c.Close()
		s.end()
	})
}

func begin(t *testing.T, ctx context.Context, c *Committer) *Transaction {
	t.Helper()
	x, err := c.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// sent counts the requests so far, by kind.
func (f *fake) sent() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// locksLeft waits for the background work and counts locks.
func (f *fake) locksLeft(c *Committer) int {
	for range maxBackground {
		c.slots <- struct{}{}
	}
	for range maxBackground {
		<-c.slots
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.locks()
}

func TestOnePartitionIsOneRequest(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		x := begin(t, ctx, c)
		at, err := x.Commit(ctx, []Write{put(k2("a0"), "1"), put(k2("a1"), "2")},
			Reads{At: s.now(), Keys: []Key{k2("a0")},
				Spans: []Span{{2, AllPartitions, keys.Span{Start: []byte("a0"), End: []byte("a2")}}}},
			false)
		if err != nil || at.IsZero() {
			t.Fatal(at, err)
		}
		if got := fmt.Sprint(s.sent()); got != "map[*kvpb.Request_Prepare:1]" {
			t.Error(got)
		}
		if v, _ := s.get(k2("a1"), at); v != "2" {
			t.Error(v)
		}
		// A span of another partition too makes it two phases.
		x = begin(t, ctx, c)
		if _, err := x.Commit(ctx, []Write{put(k2("a0"), "3")},
			Reads{At: s.now(), Spans: []Span{{Keyspace: 2, Hash: AllPartitions}}}, false); err != nil {
			t.Fatal(err)
		}
		if s.sent()["*kvpb.Request_EndTransaction"] != 1 {
			t.Error(s.sent())
		}
		if n := s.locksLeft(c); n != 0 {
			t.Errorf("%d locks", n)
		}
	})
}

// What was read under a lock is validated with the rest: the lock may be gone, and what took it
// away may have written.
func TestOnePhaseValidatesWhatWasLocked(t *testing.T) {
	for _, written := range []bool{false, true} {
		bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
			x := begin(t, ctx, c)
			locked, err := x.Lock(ctx, hlc.Timestamp{}, false, k2("a0"))
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			s.whole(2).Resolve("a0", &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED})
			s.write("2/a0", fakeserver.Version{At: s.now().Next(), Value: "other", Transaction: "other"})
			s.mu.Unlock()
			key := k2("a0")
			if !written {
				key = k2("a1")
			}
			_, err = x.Commit(ctx, []Write{put(key, "1")},
				Reads{At: locked[0].At, Locked: []Key{k2("a0")}}, false)
			if !errors.Is(err, ErrConflict) {
				t.Errorf("written %t: %v", written, err)
			}
			if got := s.sent()["*kvpb.Request_Prepare"]; got != 2 {
				t.Errorf("%d prepares", got)
			}
		})
	}
}

// What was read and is written is checked once: as it is locked, or by a refresh where the servers
// are of a version that does not compare.
func TestWhatServersDoNotCompareIsRefreshed(t *testing.T) {
	for _, earlier := range []bool{false, true} {
		for _, changed := range []bool{false, true} {
			bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
				s.earlier = earlier
				x := begin(t, ctx, c)
				reads := Reads{At: s.now(), Keys: []Key{k1("x"), k2("a9")}}
				if changed {
					s.mu.Lock()
					s.write("2/a9", fakeserver.Version{At: s.now().Next(), Value: "other",
						Transaction: "other"})
					s.mu.Unlock()
				}
				_, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a9"), "1")}, reads, false)
				if errors.Is(err, ErrConflict) != changed || (err != nil && !changed) {
					t.Errorf("earlier servers %t, changed %t: %v", earlier, changed, err)
				}
				if refreshed := s.sent()["*kvpb.Request_Refresh"] > 0; refreshed != earlier {
					t.Errorf("earlier servers %t: refreshed %t", earlier, refreshed)
				}
			})
		}
	}
}

func TestCommitTimestampIsTheHighest(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		future := s.now().Add(time.Second)
		s.write("2/a9", fakeserver.Version{At: future, Value: "0"})
		x := begin(t, ctx, c)
		at, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a9"), "1")}, Reads{}, false)
		if err != nil || at != future.Next() {
			t.Fatal(at, err)
		}
		s.locksLeft(c)
		for _, k := range []string{"1/x", "2/a9"} {
			if v := s.newest()[k]; v.At != at || v.Value != "1" {
				t.Errorf("%s: %+v", k, v)
			}
		}
	})
}

// A transaction that has read what another has changed hears which key it was, and of which
// transaction as long as that one has it locked; afterwards that is unknown.
func TestChangedReadsConflict(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		read := s.now()
		time.Sleep(time.Millisecond)
		if _, err := begin(t, ctx, c).Commit(ctx, []Write{put(k2("a1"), "1")}, Reads{},
			false); err != nil {
			t.Fatal(err)
		}
		open := begin(t, ctx, c)
		if _, err := open.Lock(ctx, hlc.Timestamp{}, false, k2("a2")); err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			read   Key
			writes []Write
			other  []byte
		}{
			"one phase":  {k2("a1"), []Write{put(k2("a0"), "2")}, nil},
			"two phases": {k2("a1"), []Write{put(k2("a0"), "2"), put(k1("x"), "2")}, nil},
			"written":    {k2("a1"), []Write{put(k2("a1"), "2"), put(k1("x"), "2")}, nil},
			"locked":     {k2("a2"), []Write{put(k2("a2"), "2"), put(k1("x"), "2")}, open.ID()},
		} {
			_, err := begin(t, ctx, c).Commit(ctx, test.writes,
				Reads{At: read, Keys: []Key{test.read}}, false)
			var e *Error
			if !errors.Is(err, ErrConflict) || !Retryable(err) || !errors.As(err, &e) ||
				!e.Key.same(test.read) || !bytes.Equal(e.Other, test.other) {
				t.Errorf("%s: %v, %+v", name, err, e)
			}
		}
		open.Abort()
		if n := s.locksLeft(c); n != 0 ||
			len(s.versions("1/x"))+len(s.versions("2/a0"))+len(s.versions("2/a2")) != 0 ||
			len(s.versions("2/a1")) != 1 {
			t.Errorf("%d locks, %v", n, s.newest())
		}
	})
}

func TestPushedTransactionsRefresh(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		x := begin(t, ctx, c)
		above := s.now().Add(20 * time.Millisecond)
		s.push(x.ID(), above)
		at, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")},
			Reads{At: s.now(), Keys: []Key{k2("a7")}}, true)
		if err != nil || !above.Less(at) {
			t.Fatal(at, err)
		}
		if s.sent()["*kvpb.Request_Refresh"] != 2 || s.sent()["*kvpb.Request_EndTransaction"] != 2 {
			t.Error(s.sent())
		}
	})
}

// A transaction that readers push again and again is moved into the future, but not to where no
// server's clock can be.
func TestAPushedTransactionStaysWithinTheClocksBound(t *testing.T) {
	for _, reads := range []Reads{{}, {Keys: []Key{k2("a7")}}} {
		bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
			const pushes = 12
			s.longest, s.maxOffset = 2*time.Millisecond, time.Millisecond
			x := begin(t, ctx, c)
			reads.At = s.now()
			// Readers whose clock is ahead by the bound.
			s.pushes, s.pushAhead = pushes, s.maxOffset
			_, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")}, reads, false)
			if err != nil || s.pushes > pushes-3 || s.tooEarly != 0 {
				t.Errorf(
					"%d keys were read: %v; %d of %d pushes are left, %d requests were too early",
					len(reads.Keys), err, s.pushes, pushes, s.tooEarly)
			}
		})
	}
}

// A server whose clock is too far behind for a refresh catches up.
func TestARefreshWaitsForTheClock(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		s.maxOffset = time.Millisecond
		x := begin(t, ctx, c)
		locked, err := x.Lock(ctx, hlc.Timestamp{}, true, k2("a9"))
		if err != nil {
			t.Fatal(err)
		}
		// One of two partitions is of leaders that keep the lock in memory, which the repetition
		// has to name as well.
		reads := Reads{At: locked[0].At, Keys: []Key{k1("y"), k2("a9")},
			Leaderships: map[keys.PartitionID]*kvpb.Leadership{22: {Partition: 22, Term: 1}}}
		s.pushes, s.pushAhead = 1, 50*time.Millisecond
		if _, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")}, reads,
			false); err != nil {
			t.Fatal(err)
		}
		if s.tooEarly == 0 {
			t.Error("no refresh was too early")
		}
		for _, r := range s.refreshed {
			under, locked := r.Reads.Leadership.GetPartition(), string(r.Reads.Keys[0]) == "a9"
			if (under == 22) != locked {
				t.Errorf("%s was refreshed under the leadership of partition %d", r.Reads.Keys, under)
			}
		}

		// If it does not, the transaction ends with its context, and says why.
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = c.Refresh(bounded, nil, hlc.Timestamp{}, Reads{At: s.now(), Keys: []Key{k1("y")}},
			s.now().Add(time.Hour))
		var r *route.Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &r) ||
			r.Code != kvpb.ErrorCode_TIMESTAMP_IN_FUTURE {
			t.Error(err)
		}
	})
}

func TestAnAbortedTransactionNeverCommits(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		x := begin(t, ctx, c)
		if _, err := x.Lock(ctx, hlc.Timestamp{}, false, k1("x")); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.store.Abort(x.ID())
		s.mu.Unlock()
		_, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")}, Reads{}, false)
		var e *Error
		if !errors.Is(err, ErrAborted) || !errors.As(err, &e) || e.Reason != kvpb.AbortReason_WOUNDED {
			t.Fatal(err)
		}
		if n := s.locksLeft(c); n != 0 || len(s.newest()) != 0 {
			t.Errorf("%d locks, %v", n, s.newest())
		}
	})
}

// A client that hears for which transaction and over which key its own was aborted passes that on
// to the partitions of its locks. The key may be of another keyspace than the answer.
func TestAWoundIsPassedOn(t *testing.T) {
	by := txn.ID{7}
	conflict := &kvpb.Conflict{Reason: kvpb.AbortReason_WOUNDED, Transaction: by.Bytes(),
		Key: []byte("k"), Keyspace: 9}
	for of, want := range map[uint32]keys.KeyspaceID{9: 9, 0: 1} {
		conflict.Keyspace = of
		var e *Error
		if err := classify(1, &route.Error{Code: kvpb.ErrorCode_TRANSACTION_ABORTED,
			Conflict: conflict}); !errors.As(err, &e) {
			t.Fatal(err)
		}
		wounder, wanted := txn.WoundOf(e.status())
		if wounder != by || wanted.Keyspace != want || string(wanted.Key) != "k" {
			t.Errorf("by %s, over %s of %s, and not of %s", wounder, wanted.Key, wanted.Keyspace, want)
		}
	}
}

// The coordinator forgets a commit when the participants that it was told of have no lock left: so
// it is told of all, or of nothing yet.
func TestACommitNamesEveryParticipant(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		hidden := 0
		s.hide = func(k Key) error {
			switch {
			case s.counts["*kvpb.Request_Prepare"] < 3 || string(k.Key) != "a3" || hidden == 2:
				return nil
			case s.counts["*kvpb.Request_EndTransaction"] > 0:
				t.Errorf("a commit was sent while a participant could not be located")
			}
			hidden++
			return errors.New("a hole in the table")
		}
		x := begin(t, ctx, c)
		if _, err := x.Commit(ctx,
			[]Write{put(k1("x"), "1"), put(k2("a1"), "1"), put(k2("a3"), "1")}, Reads{},
			false); err != nil {
			t.Fatal(err)
		}
		if hidden != 2 || len(s.participants) != 3 {
			t.Errorf("hidden %d times, the participants are %v", hidden, s.participants)
		}
		if n := s.locksLeft(c); n != 0 {
			t.Errorf("%d locks", n)
		}
	})
}

// A transaction that was wounded while it waits for a lock does not wait any longer than to its
// next heartbeat.
func TestHeartbeatsEndAWait(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		older, x := begin(t, ctx, c), begin(t, ctx, c)
		if _, err := older.Lock(ctx, hlc.Timestamp{}, false, k1("x")); err != nil {
			t.Fatal(err)
		}
		x.begun = x.begun.Add(time.Second) // the younger
		x.started = x.begun
		if _, err := x.Lock(ctx, hlc.Timestamp{}, false, k1("y")); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		time.AfterFunc(2500*time.Millisecond, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.store.Abort(x.ID())
		})
		_, err := x.Lock(ctx, hlc.Timestamp{}, false, k1("x"))
		if !errors.Is(err, ErrAborted) || time.Since(begun) > 4*time.Second {
			t.Error(err, time.Since(begun))
		}
		x.Abort()
		older.Abort()
		if n := s.locksLeft(c); n != 0 {
			t.Errorf("%d locks", n)
		}
		if s.sent()["*kvpb.Request_HeartbeatTransaction"] < 4 {
			t.Error(s.sent())
		}
	})
}

// The older transaction waits for no younger one, and both come to their end.
func TestNoDeadlock(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		a, b := begin(t, ctx, c), begin(t, ctx, c)
		b.begun, b.started = b.begun.Add(time.Millisecond), b.started.Add(time.Millisecond)
		for x, k := range map[*Transaction]Key{a: k1("x"), b: k1("y")} {
			if _, err := x.Lock(ctx, hlc.Timestamp{}, false, k); err != nil {
				t.Fatal(err)
			}
		}
		var young, old error
		var both sync.WaitGroup
		both.Go(func() {
			_, young = b.Commit(ctx, []Write{put(k1("x"), "b"), put(k1("y"), "b")}, Reads{}, false)
		})
		both.Go(func() {
			_, old = a.Commit(ctx, []Write{put(k1("x"), "a"), put(k1("y"), "a")}, Reads{}, false)
		})
		both.Wait()
		if old != nil || !errors.Is(young, ErrAborted) {
			t.Errorf("old: %v, young: %v", old, young)
		}
	})
}

// The answer of the decision is lost until the context ends: the outcome is unknown. As soon as an
// answer comes, it is not.
func TestUnknownOutcome(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			x := begin(t, ctx, c)
			gate := &gated{fake: s, until: time.Now().Add(time.Second)}
			if lost {
				gate.until = time.Now().Add(3 * time.Second)
			}
			c.sender = gate
			at, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")}, Reads{}, false)
			if lost != errors.Is(err, ErrOutcomeUnknown) || (err == nil) == lost || at.IsZero() != lost {
				t.Errorf("lost %v: %s, %v", lost, at, err)
			}
			if again, err := x.Outcome(ctx); !lost && !errors.Is(err, errNothingToAsk) ||
				lost && !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("lost %v: asked again at once: %s, %v", lost, again, err)
			}
			if lost {
				// A caller that asks in time learns what became of it.
				inTime, enough := context.WithTimeout(t.Context(), 10*time.Second)
				defer enough()
				for range 2 {
					if at, err := x.Outcome(inTime); err != nil || at.IsZero() {
						t.Errorf("asked again: %s, %v", at, err)
					}
				}
			}
			// It leaves nothing behind that others have to find.
			if n := s.locksLeft(c); n != 0 {
				t.Errorf("lost %v: %d locks", lost, n)
			}
		})
	}
}

// gated loses all answers to decisions for a while.
type gated struct {
	*fake
	until time.Time
}

func (g *gated) Send(ctx context.Context, q *Request) (*kvpb.Response, error) {
	response, err := g.fake.Send(ctx, q)
	if _, ends := q.Command.Command.(*kvpb.Request_EndTransaction); ends &&
		time.Now().Before(g.until) {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		return nil, unknownError()
	}
	return response, err
}

func TestUseAfterEnd(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		x := begin(t, ctx, c)
		if at, err := x.Commit(ctx, nil, Reads{At: hlc.Timestamp{Wall: 5}}, false); err != nil ||
			at.Wall != 5 {
			t.Fatal(at, err)
		}
		if _, err := x.Commit(ctx, []Write{put(k1("x"), "1")}, Reads{}, false); err == nil {
			t.Error("committed twice")
		}
		if _, err := x.Lock(ctx, hlc.Timestamp{}, false, k1("x")); err == nil {
			t.Error("locked after the end")
		}
		x.Abort()
		if len(s.sent()) != 0 {
			t.Error(s.sent())
		}
	})
}

// attempt is what a client of the chaos test did.
type attempt struct {
	id     string
	at     hlc.Timestamp
	read   map[string]string
	writes map[string]string
	err    error
}

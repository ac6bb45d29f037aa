package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func increment(ctx context.Context, ks *Keyspace, key string) func(tx *Txn) error {
	return func(tx *Txn) error {
		n := 0
		p, err := tx.Get(ctx, ks, []byte(key))
		if err == nil {
			n, err = strconv.Atoi(string(p.Value))
		} else if errors.Is(err, ErrNotFound) {
			err = nil
		}
		if err != nil {
			return err
		}
		return tx.Put(ks, []byte(key), []byte(strconv.Itoa(n+1)))
	}
}

func TestUpdateRunsAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		var runs atomic.Int64
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for range 10 {
					_, err := client.Update(ctx, func(tx *Txn) error {
						runs.Add(1)
						return errors.Join(increment(ctx, ks, "a")(tx), increment(ctx, ks, "b")(tx))
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		clients.Wait()
		for _, key := range []string{"a", "b"} {
			if p, err := ks.Get(ctx, []byte(key)); err != nil || string(p.Value) != "80" {
				t.Errorf("%s: %s, %v", key, p.Value, err)
			}
		}
		if runs.Load() <= 80 {
			t.Error("nothing ran again")
		}
	})
}

// Whatever is lost of a commit, it happens once.
func TestLostAnswersOfCommits(t *testing.T) {
	for _, kind := range []string{"prepare", "refresh", "endtransaction"} {
		inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
			ctx := t.Context()
			c.AddKeyspace("hash", 8)
			client := c.open()
			defer client.Close()
			ks := client.Keyspace("hash")
			var lost int
			c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
				if fakeserver.KindOf(r) == kind && lost < 6 {
					lost++
					return fakeserver.Fault{BreakAfter: lost%3 == 1, BreakBefore: lost%3 == 2,
						Unknown: lost%3 == 0}
				}
				return fakeserver.Fault{}
			})
			for range 5 {
				if _, err := client.Update(ctx, increment(ctx, ks, "a")); err != nil {
					t.Fatal(kind, err)
				}
				if _, err := client.Update(ctx, func(tx *Txn) error {
					// What is read only is refreshed.
					if _, err := tx.Get(ctx, ks, []byte("c")); !errors.Is(err, ErrNotFound) {
						return fmt.Errorf("c: %v", err)
					}
					return errors.Join(increment(ctx, ks, "a")(tx), increment(ctx, ks, "b")(tx))
				}); err != nil {
					t.Fatal(kind, err)
				}
			}
			p, err := ks.Get(ctx, []byte("a"))
			if err != nil || string(p.Value) != "10" || lost != 6 {
				t.Errorf("%s: %s, %v after %d faults", kind, p.Value, err, lost)
			}
		})
	}
}

func TestTxnErrors(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		own := errors.New("no")
		var kept *Txn
		if _, err := client.Update(ctx, func(tx *Txn) error {
			kept = tx
			return errors.Join(tx.Put(ks, []byte("a"), nil), own)
		}); !errors.Is(err, own) {
			t.Error(err)
		}
		if n, err := ks.Count(ctx); err != nil || n != 0 {
			t.Error(n, err)
		}
		_, get := kept.Get(ctx, ks, []byte("a"))
		_, commit := kept.Commit(ctx)
		for _, err := range []error{get, commit, kept.Put(ks, []byte("a"), nil)} {
			if !errors.Is(err, ErrTransactionEnded) {
				t.Error(err)
			}
		}
		// A commit by the function of Update does nothing.
		var within error
		if _, err := client.Update(ctx, func(tx *Txn) error {
			_, within = tx.Commit(ctx)
			return tx.Put(ks, []byte("committed"), nil)
		}); err != nil || !errors.Is(within, ErrInvalidArgument) {
			t.Error(err, within)
		}
		if _, err := ks.Get(ctx, []byte("committed")); err != nil {
			t.Error(err)
		}
		// Another client's write after every read.
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := client.Update(short, func(tx *Txn) error {
			if err := increment(ctx, ks, "a")(tx); err != nil {
				return err
			}
			_, err := ks.Put(ctx, []byte("a"), []byte("1"))
			return err
		})
		var e *Error
		if !errors.Is(err, ErrConflict) || !errors.Is(err, context.DeadlineExceeded) ||
			!errors.As(err, &e) || e.Attempts < 3 || string(e.Key) != "a" || e.Keyspace != "hash" {
			t.Errorf("%+v", err)
		}
		// An unknown outcome.
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			return fakeserver.Fault{Swallow: fakeserver.KindOf(r) == "endtransaction"}
		})
		short, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = client.Update(short, func(tx *Txn) error {
			return errors.Join(tx.Put(ks, []byte("a"), nil), tx.Put(ks, []byte("b"), nil))
		})
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c.Play(nil)
		// Limits.
		tx := must[*Txn](t)(client.Begin(ctx))
		defer tx.Rollback()
		big := make([]byte, keys.MaxValueSize)
		for i := range 8 {
			err = tx.Put(ks, []byte{'b', byte(i)}, big)
		}
		if !errors.Is(err, ErrTransactionTooLarge) || !errors.Is(err, ErrInvalidArgument) ||
			tx.Len() != 7 {
			t.Error(err, tx.Len())
		}
	})
}

// A transaction takes no more than 100,000 keys. What is refused changes nothing, keys that it has
// already may be written again, and what is taken back makes room.
func TestATransactionHoldsSoManyKeys(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("range", 0)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("range")
		tx := must[*Txn](t)(client.Begin(ctx))
		defer tx.Rollback()
		key := func(i int) []byte { return fmt.Appendf(nil, "k%06d", i) }
		put := func(i int) {
			if err := tx.Put(ks, key(i), []byte("1")); err != nil {
				t.Fatal(i, err)
			}
		}
		const most = 100_000
		put(0)
		before := tx.Savepoint()
		for i := 1; i < most; i++ {
			put(i)
		}
		size := tx.Bytes()
		for name, err := range map[string]error{"put": tx.Put(ks, key(most), []byte("1")),
			"delete": tx.Delete(ks, key(most))} {
			var e *Error
			if !errors.Is(err, ErrTransactionTooLarge) || !errors.Is(err, ErrInvalidArgument) ||
				runAgain(err) || !errors.As(err, &e) ||
				e.Op != name || e.Keyspace != "range" || !bytes.Equal(e.Key, key(most)) ||
				!strings.Contains(err.Error(), "100,000 keys") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if tx.Len() != most || tx.Bytes() != size {
			t.Errorf("it holds %d keys and %d bytes, not %d and %d, after what was refused",
				tx.Len(), tx.Bytes(), most, size)
		}
		if _, err := tx.Get(ctx, ks, key(most)); !errors.Is(err, ErrNotFound) {
			t.Errorf("what was refused: %v", err)
		}
		put(most - 1)
		if err := tx.Delete(ks, key(1)); err != nil {
			t.Error(err)
		}
		if err := tx.RollbackTo(before); err != nil {
			t.Fatal(err)
		}
		put(most)
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if n, err := ks.Count(ctx); err != nil || n != 2 {
			t.Errorf("%d keys were committed, %v", n, err)
		}
	})
}

// A View reads all at one moment, even if that has to be moved when it has read something already.
func TestViewMovesOverUncertainVersions(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		id := c.AddKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		for i := range 20 {
			must[Timestamp](t)(ks.Put(ctx, fmt.Appendf(nil, "k%02d", i), []byte("1")))
		}
		// A leader that is gone wrote with a fast clock, just before the View.
		ahead := client.Timestamp().Add(200 * time.Millisecond)
		p := c.PartitionOf(id, "k07")
		c.Set(func() {
			p.Data.Versions["k07"] = append(p.Data.Versions["k07"],
				fakeserver.Version{At: ahead, Value: "2"})
			p.Low = ahead.Add(time.Second)
		})
		runs := 0
		err := client.View(ctx, func(s *Snapshot) error {
			runs++
			if _, err := s.Get(ctx, ks, []byte("k01")); err != nil {
				return err
			}
			var all []string
			for p, err := range s.Scan(ctx, ks) {
				if err != nil {
					return err
				}
				all = append(all, string(p.Value))
			}
			if len(all) != 20 || all[7] != "2" || s.Timestamp() != ahead {
				t.Errorf("%v at %s", all, s.Timestamp())
			}
			pairs, err := s.BatchGet(ctx, ks, [][]byte{[]byte("k07"), []byte("k08")})
			if err == nil && string(pairs[0].Value) != "2" {
				t.Error(pairs)
			}
			return err
		})
		if err != nil || runs != 1 {
			t.Error(err, runs)
		}
		past := client.SnapshotAt(ahead.Prev())
		if p, err := past.Get(ctx, ks, []byte("k07")); err != nil || string(p.Value) != "1" {
			t.Error(p, err)
		}
		if n, err := past.Count(ctx, ks); err != nil || n != 20 {
			t.Error(n, err)
		}
	})
}

// A snapshot of several partitions costs one round trip, and a transaction in one partition one
// more than it reads.
func TestRequestsOfTransactions(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		var all [][]byte
		for i := range 10 {
			all = append(all, fmt.Appendf(nil, "k%02d", i))
			must[Timestamp](t)(ks.Put(ctx, all[i], []byte("1")))
		}
		c.Set(func() { clear(c.Requests) })
		if err := client.View(ctx, func(s *Snapshot) error {
			_, err := s.BatchGet(ctx, ks, all)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if c.RequestsOf("batchget") > 8 || c.RequestsOf("now") > 0 {
			t.Error(c.Requests)
		}
		c.Set(func() { clear(c.Requests) })
		if _, err := client.Update(ctx, increment(ctx, ks, "k00")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.RequestsOf("prepare") != 1 || c.RequestsOf("get") != 1 || len(c.Requests) != 2 {
			t.Error(c.Requests)
		}
	})
}

// A transaction has commit wait if it asks for it, or if a keyspace has it to which it writes; what
// it reads, or has taken back, does not matter. Every partition is told as it is prepared.
func TestCommitWaitOfKeyspaces(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		var waits, prepared []bool
		c.Set(func() {
			c.Script = func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
				switch {
				case r.GetPrepare().GetOnePhase() != nil:
					waits = append(waits, r.GetPrepare().GetOnePhase().GetCommitWait())
				case r.GetPrepare() != nil:
					prepared = append(prepared, r.GetPrepare().GetCommitWait())
				case r.GetEndTransaction() != nil:
					waits = append(waits, r.GetEndTransaction().GetCommitWait())
				}
				return fakeserver.Fault{}
			}
		})
		client := c.open()
		defer client.Close()
		ctx := t.Context()
		for _, create := range []struct {
			name   string
			option KeyspaceOption
		}{{"before", Hash(1)}, {"strict", CommitWait()}, {"behind", Hash(1)}} {
			if _, err := client.CreateKeyspace(ctx, create.name, Hash(1), create.option); err != nil {
				t.Fatal(err)
			}
		}
		before, strict, behind := client.Keyspace("before"), client.Keyspace("strict"),
			client.Keyspace("behind")
		key := []byte("k")
		for name, test := range map[string]struct {
			write   func(tx *Txn) error
			options []TxnOption
			want    bool
		}{
			"one without": {func(tx *Txn) error { return tx.Put(before, key, key) }, nil, false},
			"one without, asked": {func(tx *Txn) error {
				return tx.Put(before, key, key)
			}, []TxnOption{CommitWait()}, true},
			"one with":          {func(tx *Txn) error { return tx.Put(strict, key, key) }, nil, true},
			"one with, deletes": {func(tx *Txn) error { return tx.Delete(strict, key) }, nil, true},
			"two without": {func(tx *Txn) error {
				return errors.Join(tx.Put(before, key, key), tx.Put(behind, key, key))
			}, nil, false},
			"two without, asked": {func(tx *Txn) error {
				return errors.Join(tx.Put(before, key, key), tx.Put(behind, key, key))
			}, []TxnOption{CommitWait()}, true},
			"with and behind": {func(tx *Txn) error {
				return errors.Join(tx.Put(strict, key, key), tx.Put(behind, key, key))
			}, nil, true},
			"with and before": {func(tx *Txn) error {
				return errors.Join(tx.Put(strict, key, key), tx.Put(before, key, key))
			}, nil, true},
			"only read": {func(tx *Txn) error {
				_, err := tx.BatchGet(ctx, strict, [][]byte{key})
				return errors.Join(err, tx.Put(before, key, key))
			}, nil, false},
			"taken back": {func(tx *Txn) error {
				s := tx.Savepoint()
				return errors.Join(tx.Put(strict, key, key), tx.RollbackTo(s), tx.Put(before, key, key))
			}, nil, false},
		} {
			synctest.Wait() // the locks of the transaction before are released, and in no prepare's way
			c.Set(func() { waits, prepared = nil, nil })
			if _, err := client.Update(ctx, test.write, test.options...); err != nil {
				t.Fatal(name, err)
			}
			c.Set(func() {
				if len(waits) != 1 || waits[0] != test.want {
					t.Errorf("%s: commit wait %v, want %v", name, waits, test.want)
				}
				both := strings.HasPrefix(name, "two ") || strings.HasPrefix(name, "with and ")
				if both != (len(prepared) == 2) || slices.Contains(prepared, !test.want) {
					t.Errorf("%s: prepared with commit wait %v, want %v", name, prepared, test.want)
				}
			})
		}
	})
}

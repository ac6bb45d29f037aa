package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A transaction over hash and range keyspaces against a map: what it reads is what it found and has written, whatever was rolled back; and what
// it commits is all that is there afterwards.
func TestTxnBesideModel(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.addKeyspace("hash", 5)
		c.addKeyspace("range", 0, "k3", "k6")
		c.pageRows = 3
		client := c.open()
		defer client.Close()
		ctx := t.Context()
		spaces := []*Keyspace{client.Keyspace("hash"), client.Keyspace("range")}
		rapid.Check(undated{t}, func(t *rapid.T) {
			start, versions := []map[string]string{{}, {}}, []map[string]Timestamp{{}, {}}
			for i, ks := range spaces {
				if _, err := ks.DeleteRange(ctx, All()); err != nil {
					t.Fatal(err)
				}
				for _, k := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 6).Draw(t, "start") {
					key := fmt.Sprintf("k%d", k)
					start[i][key] = "old" + key
					var err error
					if versions[i][key], err = ks.Put(ctx, []byte(key), []byte("old"+key)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var want []map[string]string
			at, err := client.Update(ctx, func(tx *Txn) error {
				want = []map[string]string{maps.Clone(start[0]), maps.Clone(start[1])}
				return steps(t, ctx, tx, spaces, want, versions)
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, ks := range spaces {
				got := make(map[string]string)
				for p, err := range ks.Scan(ctx) {
					if err != nil {
						t.Fatal(err)
					}
					got[string(p.Key)] = string(p.Value)
					if start[i][string(p.Key)] != string(p.Value) && p.Version != at {
						t.Fatalf("%s has the version %s, not %s", p.Key, p.Version, at)
					}
				}
				if !maps.Equal(got, want[i]) {
					t.Fatalf("%s: %v, want %v", ks.Name(), got, want[i])
				}
			}
			// So find all those who do not write.
			check := func(s *Snapshot) error {
				snapshotIs(t, ctx, s, spaces, want)
				return nil
			}
			if err := client.View(ctx, check); err != nil {
				t.Fatal(err)
			}
			if !at.IsZero() {
				_ = check(client.SnapshotAt(hlc.Max(at, client.Timestamp())))
			}
		})
	})
}

// snapshotIs compares all that a snapshot can read with a model.
func snapshotIs(t *rapid.T, ctx context.Context, s *Snapshot, spaces []*Keyspace, model []map[string]string) {
	for i, ks := range spaces {
		from, to := []byte("k2"), []byte("k7")
		var want, got []string
		for _, k := range slices.Sorted(maps.Keys(model[i])) {
			if k >= string(from) && k < string(to) {
				want = append(want, k+"="+model[i][k])
			}
		}
		if n, err := s.Count(ctx, ks, From(from), To(to)); err != nil || int(n) != len(want) {
			t.Fatalf("%s: count %d, %v; want %v", ks.Name(), n, err, want)
		}
		slices.Reverse(want)
		want = want[:min(3, len(want))]
		for p, err := range s.Scan(ctx, ks, From(from), To(to), Reverse(), Limit(3)) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(p.Key)+"="+string(p.Value))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: scan in reverse %v, want %v", ks.Name(), got, want)
		}
		pairs, err := s.BatchGet(ctx, ks, [][]byte{[]byte("k1"), []byte("k5")})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if value, there := model[i][string(p.Key)]; p.Exists() != there || string(p.Value) != value {
				t.Fatalf("%s: batch get %v, want %q", ks.Name(), p, value)
			}
		}
	}
}

// steps does random things with a transaction and a model. A lock that an earlier transaction is just giving up is a conflict, which is
// returned. versions are those of what was there before, which is what begins with "old".
func steps(t *rapid.T, ctx context.Context, tx *Txn, spaces []*Keyspace, model []map[string]string, versions []map[string]Timestamp) error {
	type saved struct {
		point Savepoint
		state []map[string]string
	}
	var points []saved
	key := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("k%d", rapid.IntRange(0, 9).Draw(t, "key")) })
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		i := rapid.IntRange(0, 1).Draw(t, "keyspace")
		ks, k := spaces[i], key.Draw(t, "key")
		switch op := rapid.SampledFrom([]string{"get", "lock", "batch", "put", "delete", "swap", "scan", "count", "clear", "save", "back"}).Draw(t, "op"); op {
		case "get", "lock":
			get := tx.Get
			if op == "lock" {
				get = tx.GetForUpdate
			}
			p, err := get(ctx, ks, []byte(k))
			if runAgain(err) {
				return err
			}
			value, there := model[i][k]
			if there != (err == nil) || (!there && !errors.Is(err, ErrNotFound)) || string(p.Value) != value {
				t.Fatalf("get %s: %q, %v; want %q, %v", k, p.Value, err, value, there)
			}
		case "batch":
			all := [][]byte{[]byte(k), []byte("k0"), []byte("k9"), []byte("k5")}
			pairs, err := tx.BatchGet(ctx, ks, all)
			must(err)
			for j, p := range pairs {
				if value, there := model[i][string(all[j])]; p.Exists() != there || string(p.Value) != value || !bytes.Equal(p.Key, all[j]) {
					t.Fatalf("batch get %s: %v", all[j], p)
				}
			}
		case "put":
			must(tx.Put(ks, []byte(k), []byte("new"+k)))
			model[i][k] = "new" + k
		case "delete":
			must(tx.Delete(ks, []byte(k)))
			delete(model[i], k)
		case "swap":
			for range rapid.IntRange(1, 3).Draw(t, "swaps") { // the later ones find what the first has written
				if err := swapBesideModel(t, ctx, tx, ks, k, model[i], versions[i]); err != nil {
					return err
				}
			}
		case "scan", "count", "clear":
			from, to := k, key.Draw(t, "to")
			if to <= from {
				to = from + "x"
			}
			span := keys.Span{Start: []byte(from), End: []byte(to)}
			var want []string
			for k, v := range model[i] {
				if span.Contains([]byte(k)) {
					want = append(want, k+"="+v)
				}
			}
			slices.Sort(want)
			if op == "count" {
				n, err := tx.Count(ctx, ks, From(span.Start), To(span.End))
				must(err)
				if int(n) != len(want) {
					t.Fatalf("count %s: %d, want %v", span, n, want)
				}
				break
			}
			if op == "clear" {
				n, err := tx.DeleteRange(ctx, ks, From(span.Start), To(span.End))
				must(err)
				if int(n) != len(want) {
					t.Fatalf("delete range %s: %d, want %v", span, n, want)
				}
				maps.DeleteFunc(model[i], func(k, _ string) bool { return span.Contains([]byte(k)) })
				break
			}
			options := []ScanOption{From(span.Start), To(span.End)}
			if rapid.Bool().Draw(t, "reverse") {
				options = append(options, Reverse())
				slices.Reverse(want)
			}
			if n := rapid.IntRange(0, 3).Draw(t, "limit"); n > 0 {
				options = append(options, Limit(n))
				want = want[:min(n, len(want))]
			}
			var got []string
			for p, err := range tx.Scan(ctx, ks, options...) {
				must(err)
				got = append(got, string(p.Key)+"="+string(p.Value))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("scan %s: %v, want %v", span, got, want)
			}
		case "save":
			points = append(points, saved{tx.Savepoint(), []map[string]string{maps.Clone(model[0]), maps.Clone(model[1])}})
		case "back":
			if len(points) == 0 {
				break
			}
			n := rapid.IntRange(0, len(points)-1).Draw(t, "savepoint")
			must(tx.RollbackTo(points[n].point))
			for _, later := range points[n+1:] {
				if tx.RollbackTo(later.point) == nil {
					t.Fatal("a later savepoint is still there")
				}
			}
			points = points[:n+1]
			model[0], model[1] = maps.Clone(points[n].state[0]), maps.Clone(points[n].state[1])
		}
	}
	return nil
}

// swapBesideModel swaps a key as a random expectation says, or finds that it is otherwise. It returns a conflict.
func swapBesideModel(t *rapid.T, ctx context.Context, tx *Txn, ks *Keyspace, k string, model map[string]string, versions map[string]Timestamp) error {
	value, there := model[k]
	var version Timestamp
	if there {
		if version = Uncommitted; strings.HasPrefix(value, "old") {
			version = versions[k]
		}
	}
	type expectation struct {
		name   string
		expect Expectation
		holds  bool
	}
	ofVersion := func(name string, v Timestamp) expectation { return expectation{name, ExpectVersion(v), version == v} }
	all := []expectation{
		{"absence", ExpectAbsent(), !there},
		{"new value", ExpectValue([]byte("new" + k)), value == "new"+k},
		{"old value", ExpectValue([]byte("old" + k)), value == "old"+k},
		ofVersion("old version", hlc.Max(versions[k], Timestamp{Wall: 1})), // any, if there was none
		ofVersion("later version", versions[k].Next()),
		ofVersion("own version", Uncommitted),
	}
	if rapid.Bool().Draw(t, "likely") {
		all = slices.DeleteFunc(all, func(e expectation) bool { return !e.holds && e.name != "old value" })
	}
	e := all[rapid.IntRange(0, len(all)-1).Draw(t, "expectation")]
	replacement, deletes := Set([]byte("swapped")), rapid.Bool().Draw(t, "deletes")
	if deletes {
		replacement = DeleteIt
	}
	swap, err := tx.CompareAndSwap(ctx, ks, []byte(k), e.expect, replacement)
	if runAgain(err) {
		return err
	}
	switch {
	case err != nil || swap.Swapped != e.holds:
		t.Fatalf("swap %s, expecting its %s, of %q at %s: %+v, %v", k, e.name, value, version, swap, err)
	case !e.holds:
		if c := swap.Current; string(c.Key) != k || c.Exists() != there || string(c.Value) != value || c.Version != version {
			t.Fatalf("swap %s: it found %v, want %q at %s", k, c, value, version)
		}
	case swap.Version != Uncommitted || swap.Current.Exists():
		t.Fatalf("swap %s: %+v", k, swap)
	case deletes:
		delete(model, k)
	default:
		model[k] = "swapped"
	}
	return nil
}

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
		c.addKeyspace("hash", 8)
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
			c.addKeyspace("hash", 8)
			client := c.open()
			defer client.Close()
			ks := client.Keyspace("hash")
			var lost int
			c.play(func(_ *fakeNode, r *kvpb.Request) fault {
				if kindOf(r) == kind && lost < 6 {
					lost++
					return fault{breakAfter: lost%3 == 1, breakBefore: lost%3 == 2, unknown: lost%3 == 0}
				}
				return fault{}
			})
			for range 5 {
				if _, err := client.Update(ctx, increment(ctx, ks, "a")); err != nil {
					t.Fatal(kind, err)
				}
				if _, err := client.Update(ctx, func(tx *Txn) error {
					if _, err := tx.Get(ctx, ks, []byte("c")); !errors.Is(err, ErrNotFound) { // what is read only is refreshed
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
		c.addKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		own := errors.New("no")
		var kept *Txn
		if _, err := client.Update(ctx, func(tx *Txn) error { kept = tx; return errors.Join(tx.Put(ks, []byte("a"), nil), own) }); !errors.Is(err, own) {
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
		// Somebody else's write after every read.
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
		if !errors.Is(err, ErrConflict) || !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Attempts < 3 || string(e.Key) != "a" || e.Keyspace != "hash" {
			t.Errorf("%+v", err)
		}
		// An unknown outcome.
		c.play(func(_ *fakeNode, r *kvpb.Request) fault { return fault{swallow: kindOf(r) == "endtransaction"} })
		short, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = client.Update(short, func(tx *Txn) error {
			return errors.Join(tx.Put(ks, []byte("a"), nil), tx.Put(ks, []byte("b"), nil))
		})
		if !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		c.play(nil)
		// Limits.
		tx := must[*Txn](t)(client.Begin(ctx))
		defer tx.Rollback()
		big := make([]byte, keys.MaxValueSize)
		for i := range 8 {
			err = tx.Put(ks, []byte{'b', byte(i)}, big)
		}
		if !errors.Is(err, ErrTransactionTooLarge) || !errors.Is(err, ErrInvalidArgument) || tx.Len() != 7 {
			t.Error(err, tx.Len())
		}
	})
}

// A transaction takes no more than 100,000 keys. What is refused changes nothing, keys that it has already may be written again, and what is
// taken back makes room.
func TestATransactionHoldsSoManyKeys(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.addKeyspace("range", 0)
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
		for name, err := range map[string]error{"put": tx.Put(ks, key(most), []byte("1")), "delete": tx.Delete(ks, key(most))} {
			var e *Error
			if !errors.Is(err, ErrTransactionTooLarge) || !errors.Is(err, ErrInvalidArgument) || runAgain(err) || !errors.As(err, &e) ||
				e.Op != name || e.Keyspace != "range" || !bytes.Equal(e.Key, key(most)) || !strings.Contains(err.Error(), "100,000 keys") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if tx.Len() != most || tx.Bytes() != size {
			t.Errorf("it holds %d keys and %d bytes, not %d and %d, after what was refused", tx.Len(), tx.Bytes(), most, size)
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
		id := c.addKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		for i := range 20 {
			must[Timestamp](t)(ks.Put(ctx, fmt.Appendf(nil, "k%02d", i), []byte("1")))
		}
		// A leader that is gone wrote with a fast clock, just before the View.
		ahead := client.Timestamp().Add(200 * time.Millisecond)
		p := c.partitionOf(id, "k07")
		c.set(func() {
			p.versions["k07"] = append(p.versions["k07"], fakeVersion{at: ahead, value: []byte("2")})
			p.low = ahead.Add(time.Second)
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

// A snapshot of several partitions costs one round trip, and a transaction in one partition one more than it reads.
func TestRequestsOfTransactions(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.addKeyspace("hash", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		var all [][]byte
		for i := range 10 {
			all = append(all, fmt.Appendf(nil, "k%02d", i))
			must[Timestamp](t)(ks.Put(ctx, all[i], []byte("1")))
		}
		c.set(func() { clear(c.requests) })
		if err := client.View(ctx, func(s *Snapshot) error {
			_, err := s.BatchGet(ctx, ks, all)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if c.requestsOf("batchget") > 8 || c.requestsOf("now") > 0 {
			t.Error(c.requests)
		}
		c.set(func() { clear(c.requests) })
		if _, err := client.Update(ctx, increment(ctx, ks, "k00")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.requestsOf("prepare") != 1 || c.requestsOf("get") != 1 || len(c.requests) != 2 {
			t.Error(c.requests)
		}
	})
}

// A transaction has commit wait if it asks for it, or if a keyspace has it to which it writes; what it reads, or has taken back, does not matter.
// Every partition is told as it is prepared.
func TestCommitWaitOfKeyspaces(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		var waits, prepared []bool
		c.set(func() {
			c.script = func(_ *fakeNode, r *kvpb.Request) fault {
				switch {
				case r.GetPrepare().GetOnePhase() != nil:
					waits = append(waits, r.GetPrepare().GetOnePhase().GetCommitWait())
				case r.GetPrepare() != nil:
					prepared = append(prepared, r.GetPrepare().GetCommitWait())
				case r.GetEndTransaction() != nil:
					waits = append(waits, r.GetEndTransaction().GetCommitWait())
				}
				return fault{}
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
		before, strict, behind := client.Keyspace("before"), client.Keyspace("strict"), client.Keyspace("behind")
		key := []byte("k")
		for name, test := range map[string]struct {
			write   func(tx *Txn) error
			options []TxnOption
			want    bool
		}{
			"one without":        {func(tx *Txn) error { return tx.Put(before, key, key) }, nil, false},
			"one without, asked": {func(tx *Txn) error { return tx.Put(before, key, key) }, []TxnOption{WithCommitWait()}, true},
			"one with":           {func(tx *Txn) error { return tx.Put(strict, key, key) }, nil, true},
			"one with, deletes":  {func(tx *Txn) error { return tx.Delete(strict, key) }, nil, true},
			"two without":        {func(tx *Txn) error { return errors.Join(tx.Put(before, key, key), tx.Put(behind, key, key)) }, nil, false},
			"two without, asked": {func(tx *Txn) error { return errors.Join(tx.Put(before, key, key), tx.Put(behind, key, key)) }, []TxnOption{WithCommitWait()}, true},
			"with and behind":    {func(tx *Txn) error { return errors.Join(tx.Put(strict, key, key), tx.Put(behind, key, key)) }, nil, true},
			"with and before":    {func(tx *Txn) error { return errors.Join(tx.Put(strict, key, key), tx.Put(before, key, key)) }, nil, true},
			"only read": {func(tx *Txn) error {
				_, err := tx.BatchGet(ctx, strict, [][]byte{key})
				return errors.Join(err, tx.Put(before, key, key))
			}, nil, false},
			"taken back": {func(tx *Txn) error {
				s := tx.Savepoint()
				return errors.Join(tx.Put(strict, key, key), tx.RollbackTo(s), tx.Put(before, key, key))
			}, nil, false},
		} {
			c.set(func() { waits, prepared = nil, nil })
			if _, err := client.Update(ctx, test.write, test.options...); err != nil {
				t.Fatal(name, err)
			}
			c.set(func() {
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

package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// inBubble runs a test against a fake cluster in virtual time. That it returns shows that no
// goroutine is left.
func inBubble(t *testing.T, nodes int, f func(t *testing.T, c *fakeCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster(t, nodes)
		defer c.Close()
		f(t, c)
	})
}

func must[V any](t testing.TB) func(v V, err error) V {
	return func(v V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestSingleKeys(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		client := c.open()
		defer client.Close()
		ks := must[*Keyspace](t)(client.CreateKeyspace(ctx, "users", Hash(4)))
		key := []byte("ada")

		if _, err := ks.Get(ctx, key); !errors.Is(err, ErrNotFound) {
			t.Fatalf("Get of nothing: %v", err)
		}
		v1 := must[Timestamp](t)(ks.Put(ctx, key, []byte("one")))
		v2 := must[Timestamp](t)(ks.Put(ctx, key, nil))
		if !v1.Less(v2) || client.Timestamp().Less(v2) {
			t.Fatalf("versions %s, %s, session %s", v1, v2, client.Timestamp())
		}
		pair := must[Pair](t)(ks.Get(ctx, key))
		if pair.Value == nil || len(pair.Value) != 0 || pair.Version != v2 {
			t.Fatalf("got %v", pair)
		}
		if pair = must[Pair](t)(ks.Get(ctx, key, At(v1))); string(pair.Value) != "one" {
			t.Fatalf("at %s: got %v", v1, pair)
		}

		swap := must[Swap](t)(ks.CompareAndSwap(ctx, key, ExpectAbsent(), Set([]byte("x"))))
		if swap.Swapped || !swap.Current.Exists() || swap.Current.Version != v2 {
			t.Fatalf("swap %+v", swap)
		}
		swap = must[Swap](t)(ks.CompareAndSwap(ctx, key, ExpectVersion(v2), Set([]byte("three"))))
		if !swap.Swapped || swap.Version.LessEq(v2) {
			t.Fatalf("swap %+v", swap)
		}
		swap = must[Swap](t)(ks.CompareAndSwap(ctx, key, ExpectValue([]byte("three")), Delete()))
		if !swap.Swapped {
			t.Fatalf("swap %+v", swap)
		}
		if existed := must[bool](t)(ks.Delete(ctx, key)); existed {
			t.Fatal("deleted what was deleted")
		}
		swap = must[Swap](t)(ks.CompareAndSwap(ctx, key, ExpectValue(nil), Delete()))
		if swap.Swapped || swap.Current.Exists() {
			t.Fatalf("swap %+v", swap)
		}
	})
}

func TestInvalidCallsSendNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("users", 4)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("users")
		big := make([]byte, 8<<20+1)
		key := []byte("k")
		calls := map[string]func() error{
			"empty key":   func() error { _, err := ks.Get(ctx, nil); return err },
			"large key":   func() error { _, err := ks.Put(ctx, big[:8<<10+1], nil); return err },
			"large value": func() error { _, err := ks.Put(ctx, key, big); return err },
			"large swap": func() error {
				_, err := ks.CompareAndSwap(ctx, key, ExpectAbsent(), Set(big))
				return err
			},
			"no expectation": func() error {
				_, err := ks.CompareAndSwap(ctx, key, Expectation{}, Delete())
				return err
			},
			"no replacement": func() error {
				_, err := ks.CompareAndSwap(ctx, key, ExpectAbsent(), Replacement{})
				return err
			},
			"unset version": func() error {
				_, err := ks.CompareAndSwap(ctx, key, ExpectVersion(Timestamp{}), Delete())
				return err
			},
			"batch twice": func() error {
				_, err := ks.Batch().Put(key, nil).Delete(key).Commit(ctx)
				return err
			},
			"batch empty key": func() error {
				_, err := ks.Batch().Put(nil, nil).Commit(ctx)
				return err
			},
			"batchget empty": func() error {
				_, err := ks.BatchGet(ctx, [][]byte{key, {}})
				return err
			},
			"delete unbounded": func() error { _, err := ks.DeleteRange(ctx); return err },
			"limit -1":         func() error { _, err := drain(ks.Scan(ctx, Limit(-1))); return err },
			"page size 0":      func() error { _, err := drain(ks.Scan(ctx, PageSize(0))); return err },
			"from above to": func() error {
				_, err := drain(ks.Scan(ctx, From([]byte("z")), To([]byte("a"))))
				return err
			},
			"at unset": func() error { _, err := ks.Get(ctx, key, At(Timestamp{})); return err },
			"no name":  func() error { _, err := client.Keyspace("").Get(ctx, key); return err },
			"hash 0": func() error {
				_, err := client.CreateKeyspace(ctx, "x", Hash(0))
				return err
			},
			"hash many": func() error {
				_, err := client.CreateKeyspace(ctx, "x", Hash(16385))
				return err
			},
			"splits unsorted": func() error {
				_, err := client.CreateKeyspace(ctx, "x", Range([]byte("b"), []byte("a")))
				return err
			},
			"splits repeated": func() error {
				_, err := client.CreateKeyspace(ctx, "x", Range([]byte("b"), []byte("b")))
				return err
			},
			"splits empty": func() error {
				_, err := client.CreateKeyspace(ctx, "x", Range(nil))
				return err
			},
			"two replicas": func() error {
				_, err := client.CreateKeyspace(ctx, "x", Replicas(2))
				return err
			},
			"short window": func() error {
				_, err := client.CreateKeyspace(ctx, "x", GCWindow(time.Millisecond))
				return err
			},
			"unnamed": func() error { _, err := client.CreateKeyspace(ctx, ""); return err },
		}
		before := c.RequestsOf("put") + c.RequestsOf("get") + c.RequestsOf("scan")
		for name, call := range calls {
			err := call()
			if !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("%s: %v", name, err)
			}
			var e *Error
			if !errors.As(err, &e) || e.Op == "" || e.Message == "" {
				t.Errorf("%s: not an *Error: %v", name, err)
			}
		}
		if after := c.RequestsOf("put") + c.RequestsOf("get") + c.RequestsOf("scan"); after != before {
			t.Errorf("%d requests were sent", after-before)
		}
	})
}

func TestOpenListsEachEndpoint(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		_, err := c.tryOpen(t.Context(), []string{"nowhere:1", "elsewhere:2"})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "nowhere:1: ") ||
			!strings.Contains(err.Error(), "elsewhere:2: ") {
			t.Fatalf("%v", err)
		}
		if _, err := c.tryOpen(t.Context(), nil); !errors.Is(err, ErrInvalidArgument) {
			t.Fatalf("%v", err)
		}
		// One good one is enough.
		client, err := c.tryOpen(t.Context(), []string{"nowhere:1", c.Nodes[1].Address})
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		// A server that hangs is not waited for beyond the context.
		c.Network.Isolate("node1", memnet.Stall)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err = c.tryOpen(ctx, []string{c.Nodes[1].Address})
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.Nodes[1].Address) {
			t.Fatalf("%v", err)
		}
		c.Network.HealAll()
	})
}

func TestKeyspaceAdministration(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		client := c.open()
		defer client.Close()
		if _, err := client.Keyspace("ghost").Put(ctx, []byte("k"), nil); !errors.Is(err,
			ErrKeyspaceNotFound) {
			t.Fatalf("%v", err)
		}
		if err := client.DropKeyspace(ctx, "ghost"); !errors.Is(err, ErrKeyspaceNotFound) {
			t.Fatalf("%v", err)
		}
		ks := must[*Keyspace](t)(client.CreateKeyspace(ctx, "a", Range([]byte("g"), []byte("t")),
			Replicas(3), GCWindow(time.Minute)))
		if _, err := client.CreateKeyspace(ctx, "a"); !errors.Is(err, ErrKeyspaceExists) {
			t.Fatalf("%v", err)
		}
		if _, err := client.CreateKeyspace(ctx, "b", Replicas(5)); !errors.Is(err, ErrInvalidArgument) {
			t.Fatalf("%v", err)
		}
		if err := client.DropKeyspace(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := ks.Get(ctx, []byte("k")); !errors.Is(err, ErrKeyspaceNotFound) {
			t.Fatalf("%v", err)
		}

		// A keyspace that cannot be used yet says what it waits for.
		c.Set(func() { c.WaitingFor = "2 more nodes (has 1, needs 3)" })
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := client.CreateKeyspace(short, "slow")
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "2 more nodes") {
			t.Fatalf("%v", err)
		}
	})
}

func TestBatch(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		id := c.AddKeyspace("r", 0, "m")
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("r")
		version := must[Timestamp](t)(
			ks.Batch().Put([]byte("a"), []byte("1")).Put([]byte("b"), []byte("2")).
				Delete([]byte("c")).Commit(ctx))
		for _, key := range []string{"a", "b"} {
			if p := must[Pair](t)(ks.Get(ctx, []byte(key))); p.Version != version {
				t.Fatalf("%+v", p)
			}
		}
		// Keys of several partitions make a transaction of a batch, whether the client has heard of a
		// split or not.
		for i, far := range []string{"z", "b", "b"} {
			if i == 1 {
				c.Split(c.PartitionOf(id, "a"), "b", false)
			}
			version = must[Timestamp](t)(
				ks.Batch().Put([]byte("a"), []byte("3")).Delete([]byte(far)).Commit(ctx))
			if p := must[Pair](t)(ks.Get(ctx, []byte("a"))); p.Version != version {
				t.Fatalf("%+v", p)
			}
			if _, err := ks.Get(ctx, []byte(far)); !errors.Is(err, ErrNotFound) {
				t.Fatal(err)
			}
			if n := c.Writes(id, "a"); n != i+2 {
				t.Fatalf("%d writes of a key after %d batches", n, i+2)
			}
		}
		// Numbers of a hash keyspace are their caller's to know.
		hashed := c.AddKeyspace("h", 16)
		h, first, far := client.Keyspace("h"), []byte("a"), []byte("b")
		for i := 0; keys.HashPartition(first, 16) == keys.HashPartition(far, 16); i++ {
			far = fmt.Appendf(nil, "b%d", i)
		}
		_, err := h.Batch().Put(first, nil).Put(far, nil).Commit(ctx)
		if !errors.Is(err, ErrCrossPartition) || !strings.Contains(err.Error(), `"a"`) ||
			!strings.Contains(err.Error(), string(far)) {
			t.Fatalf("%v", err)
		}
		if c.Writes(hashed, "a") != 0 {
			t.Fatal("a refused batch wrote")
		}
	})
}

func TestBatchGetReadsOneMoment(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("h", 8)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("h")
		var all [][]byte
		for i := range 40 {
			key := fmt.Appendf(nil, "key%d", i)
			all = append(all, key)
			if i%2 == 0 {
				must[Timestamp](t)(ks.Put(ctx, key, make([]byte, 100_000)))
			}
		}
		before := client.Timestamp()
		for i, p := range must[[]Pair](t)(ks.BatchGet(ctx, all)) {
			if string(p.Key) != string(all[i]) || p.Exists() != (i%2 == 0) {
				t.Fatalf("%d: %+v", i, p)
			}
		}
		must[bool](t)(ks.Delete(ctx, all[0]))
		if p := must[[]Pair](t)(ks.BatchGet(ctx, all[:2], At(before))); !p[0].Exists() ||
			p[1].Exists() {
			t.Fatalf("%+v", p)
		}
	})
}

// A write whose reply was lost is sent again, and applied once.
func TestLostReplies(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		id := c.AddKeyspace("h", 2)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("h")
		for name, f := range map[string]fakeserver.Fault{
			"break-after": {BreakAfter: true}, "break-before": {BreakBefore: true},
			"unknown":    {Unknown: true},
			"overloaded": {Code: kvpb.ErrorCode_OVERLOADED},
			"no-quorum":  {Code: kvpb.ErrorCode_NO_QUORUM},
			"unhealthy":  {Code: kvpb.ErrorCode_NODE_UNHEALTHY},
			"not-leader": {Code: kvpb.ErrorCode_NOT_LEADER},
		} {
			once := false
			c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
				if fakeserver.IsWrite(r) && r.Term != 0 && !once {
					once = true
					return f
				}
				return fakeserver.Fault{}
			})
			must[Timestamp](t)(ks.Put(ctx, []byte(name), []byte("v")))
			if n := c.Writes(id, name); n != 1 || !once {
				t.Errorf("%s: applied %d times", name, n)
			}
			c.Play(nil)
		}
	})
}

// Errors that the caller must know of come at once.
func TestTypedErrors(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("h", 2)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("h")
		for code, kind := range map[kvpb.ErrorCode]error{
			kvpb.ErrorCode_DISK_FULL:           ErrDiskFull,
			kvpb.ErrorCode_CORRUPTION:          ErrCorruption,
			kvpb.ErrorCode_TIMESTAMP_TOO_OLD:   ErrTimestampTooOld,
			kvpb.ErrorCode_TIMESTAMP_IN_FUTURE: ErrTimestampInFuture,
			kvpb.ErrorCode_INVALID_ARGUMENT:    ErrInvalidArgument,
			kvpb.ErrorCode_WRONG_CLUSTER:       ErrWrongCluster,
		} {
			c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
				return fakeserver.Fault{Code: code}
			})
			began := time.Now()
			_, err := ks.Put(ctx, []byte("k"), nil)
			var e *Error
			if !errors.Is(err, kind) || errors.Is(err, ErrOutcomeUnknown) || !errors.As(err, &e) ||
				e.Partition == 0 || string(e.Key) != "k" {
				t.Errorf("%s: %v", code, err)
			}
			if d := time.Since(began); d > time.Second {
				t.Errorf("%s: took %s", code, d)
			}
		}
		// What never works until the context ends says what it was.
		for code, kind := range map[kvpb.ErrorCode]error{
			kvpb.ErrorCode_OVERLOADED: ErrOverloaded, kvpb.ErrorCode_NO_QUORUM: ErrNoQuorum,
			kvpb.ErrorCode_NOT_LEADER:          ErrUnavailable,
			kvpb.ErrorCode_PARTITION_NOT_FOUND: ErrUnavailable, kvpb.ErrorCode_CLOCK_SKEW: ErrUnavailable,
		} {
			c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
				return fakeserver.Fault{Code: code}
			})
			short, cancel := context.WithTimeout(ctx, 3*time.Second)
			_, err := ks.Put(short, []byte("k"), nil)
			cancel()
			if !errors.Is(err, kind) || !errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("%s: %v", code, err)
			}
		}
		c.Play(nil)
		must[Timestamp](t)(ks.Put(ctx, []byte("k"), nil))
	})
}

// When a write may have been executed, no error denies it.
func TestOutcomeUnknown(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("h", 2)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("h")
		must[Timestamp](t)(ks.Put(ctx, []byte("k"), nil))
		for name, then := range map[string]fakeserver.Fault{
			"then disk full": {Code: kvpb.ErrorCode_DISK_FULL}, "then nothing": {Swallow: true},
			"then overloaded": {Code: kvpb.ErrorCode_OVERLOADED},
		} {
			n := 0
			c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
				if !fakeserver.IsWrite(r) || r.Term == 0 {
					return fakeserver.Fault{}
				}
				if n++; n == 1 {
					return fakeserver.Fault{Unknown: true}
				}
				return then
			})
			short, cancel := context.WithTimeout(ctx, 4*time.Second)
			_, err := ks.Put(short, []byte("k"), nil)
			cancel()
			if !errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrDiskFull) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// But for one that is of all attempts.
		n := 0
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if !fakeserver.IsWrite(r) || r.Term == 0 {
				return fakeserver.Fault{}
			}
			if n++; n == 1 {
				return fakeserver.Fault{Unknown: true}
			}
			return fakeserver.Fault{Code: kvpb.ErrorCode_DISK_FULL, NotExecuted: true}
		})
		if _, err := ks.Put(ctx, []byte("k"), nil); errors.Is(err, ErrOutcomeUnknown) ||
			!errors.Is(err, ErrDiskFull) {
			t.Errorf("no attempt was executed: %v", err)
		}
		// A read is never of unknown outcome.
		c.Play(func(*fakeserver.Node, *kvpb.Request) fakeserver.Fault {
			return fakeserver.Fault{Swallow: true}
		})
		short, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		if _, err := ks.Get(short, []byte("k")); errors.Is(err, ErrOutcomeUnknown) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		c.Play(nil)
	})
}

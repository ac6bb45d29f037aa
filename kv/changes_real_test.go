package kv_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// follower takes a feed in, and checks what a feed promises.
type follower struct {
	t *testing.T
	// began is the first progress of a feed that begins now.
	began    chan kv.Timestamp
	progress kv.Timestamp
	versions map[string]kv.Timestamp
	changes  []kv.Change
	// values are what the changes up to the progress make, and waiting are those above it.
	values  map[string]string
	waiting []kv.Change
}

func newFollower(t *testing.T) *follower {
	return &follower{t: t, began: make(chan kv.Timestamp, 1), versions: map[string]kv.Timestamp{},
		values: map[string]string{}}
}

// follow takes a feed in until enough is true after a change.
func (f *follower) follow(ctx context.Context, ks *kv.Keyspace, enough func(kv.Change) bool,
	options ...kv.ChangesOption) error {
	for c, err := range ks.Changes(ctx, options...) {
		if err != nil {
			return err
		}
		if c.Kind == kv.ChangeProgress {
			if f.progress.IsZero() {
				f.began <- c.Timestamp
			}
			if c.Timestamp.LessEq(f.progress) {
				f.t.Errorf("progress of %s after %s", c.Timestamp, f.progress)
			}
			f.progress = c.Timestamp
			f.waiting = slices.DeleteFunc(f.waiting, f.apply)
		} else {
			f.change(c)
		}
		if enough(c) {
			return nil
		}
	}
	f.t.Error("the feed ended without an error")
	return nil
}

func (f *follower) change(c kv.Change) {
	key := string(c.Key)
	if c.Timestamp.LessEq(f.versions[key]) || c.Timestamp.LessEq(f.progress) {
		f.t.Errorf("%s of %s at %s came after %s, and progress of %s", c.Kind, key, c.Timestamp,
			f.versions[key], f.progress)
	}
	f.versions[key] = c.Timestamp
	f.changes, f.waiting = append(f.changes, c), append(f.waiting, c)
}

// apply has a change take effect that lies at or below the progress.
func (f *follower) apply(c kv.Change) bool {
	if f.progress.Less(c.Timestamp) {
		return false
	}
	if f.values[string(c.Key)] = string(c.Value); c.Kind == kv.ChangeDelete {
		delete(f.values, string(c.Key))
	}
	return true
}

// same checks that what was taken in up to the progress is what a scan finds.
func (f *follower) same(ctx context.Context, ks *kv.Keyspace) {
	f.t.Helper()
	stored := map[string]string{}
	for p, err := range ks.Scan(ctx, kv.At(f.progress)) {
		if err != nil {
			f.t.Fatal(err)
		}
		stored[string(p.Key)] = string(p.Value)
	}
	if !maps.Equal(stored, f.values) {
		f.t.Errorf("as of %s a scan finds %d keys, and the feed makes %d", f.progress, len(stored),
			len(f.values))
	}
}

// upTo says that a feed has come to a timestamp.
func upTo(at kv.Timestamp) func(kv.Change) bool {
	return func(c kv.Change) bool {
		return c.Kind == kv.ChangeProgress && at.LessEq(c.Timestamp)
	}
}

// changesCluster runs a test with a keyspace of a real cluster of three servers, in virtual time.
func changesCluster(t *testing.T, f func(ctx context.Context, cluster *kvtest.Cluster,
	client *kv.Client, ks *kv.Keyspace), options ...kv.KeyspaceOption) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "things", options...)
		if err != nil {
			t.Fatal(err)
		}
		f(ctx, cluster, client, ks)
	})
}

// TestChangesTellEveryWrite: by whatever it was written, with its timestamp, and with its expiry.
func TestChangesTellEveryWrite(t *testing.T) {
	for name, layout := range map[string]kv.KeyspaceOption{"hash": kv.Hash(4),
		"range": kv.Range([]byte("m"))} {
		t.Run(name, func(t *testing.T) {
			changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
				ks *kv.Keyspace) {
				f := newFollower(t)
				var ended sync.WaitGroup
				done := make(chan kv.Timestamp, 1)
				ended.Go(func() {
					var last kv.Timestamp
					if err := f.follow(ctx, ks, func(c kv.Change) bool {
						select {
						case last = <-done:
						default:
						}
						return !last.IsZero() && upTo(last)(c)
					}); err != nil {
						t.Error(err)
					}
				})
				began := <-f.began
				want := map[string]kv.Timestamp{}
				wrote := func(key string) func(kv.Timestamp, error) {
					return func(at kv.Timestamp, err error) {
						t.Helper()
						if err != nil {
							t.Fatal(err)
						}
						want[key] = at
						if at.LessEq(began) {
							t.Errorf("%s was written at %s, and the feed begins at %s", key, at, began)
						}
					}
				}
				wrote("put")(ks.Put(ctx, []byte("put"), []byte("1"), kv.TTL(time.Hour)))
				wrote("empty")(ks.Put(ctx, []byte("empty"), nil))
				wrote("gone")(ks.Put(ctx, []byte("gone"), []byte("1")))
				_, err := ks.Delete(ctx, []byte("gone"))
				if err != nil {
					t.Fatal(err)
				}
				swap, err := ks.CompareAndSwap(ctx, []byte("swap"), kv.ExpectAbsent(), kv.Set([]byte("1")))
				wrote("swap")(swap.Version, err)
				_, at, err := ks.Increment(ctx, []byte("count"), 1)
				wrote("count")(at, err)
				wrote("batch")(ks.Batch().Put([]byte("batch"), []byte("1")).Commit(ctx))
				wrote("txn")(client.Update(ctx, func(tx *kv.Txn) error {
					return errors.Join(tx.Put(ks, []byte("txn"), []byte("1")),
						tx.Put(ks, []byte("a txn"), []byte("1")))
				}))
				last := client.Timestamp()
				done <- last
				ended.Wait()
				for key, at := range want {
					if key != "gone" && f.versions[key] != at {
						t.Errorf("%s was written at %s, and told at %s", key, at, f.versions[key])
					}
				}
				f.same(ctx, ks)
				if _, has := f.values["gone"]; has || f.versions["gone"].LessEq(want["gone"]) {
					t.Error("that a key was deleted was not told")
				}
				for _, c := range f.changes {
					if expires := c.Timestamp.Time().Add(time.Hour); string(c.Key) == "put" &&
						!c.Expires.Equal(expires) || string(c.Key) == "empty" && c.Value == nil {
						t.Errorf("%+v", c)
					}
				}
			}, layout)
		})
	}
}

// TestChangesGoOnWhileEverythingChanges: partitions split and merge, leaders change, servers stop
// and come back, and transactions run over all of it; a feed that begins anew at its last progress
// time and again tells each version, and makes what a scan finds.
func TestChangesGoOnWhileEverythingChanges(t *testing.T) {
	changesCluster(t, func(ctx context.Context, cluster *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		random := rand.New(rand.NewPCG(7, 7))
		key := func() []byte { return fmt.Appendf(nil, "k%03d", random.IntN(300)) }
		writing, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		var working sync.WaitGroup
		working.Go(func() { // writes
			for n := 0; writing.Err() == nil; n++ {
				value := fmt.Appendf(nil, "v%d", n)
				switch a, b := key(), key(); n % 4 {
				case 0, 1:
					_, _ = ks.Put(writing, a, value)
				case 2:
					_, _ = ks.Delete(writing, a)
				case 3:
					_, _ = client.Update(writing, func(tx *kv.Txn) error {
						return errors.Join(tx.Put(ks, a, value), tx.Put(ks, b, value))
					})
				}
				time.Sleep(5 * time.Millisecond) // virtual
			}
		})
		working.Go(func() { // splits and crashes
			r := rand.New(rand.NewPCG(8, 8))
			for n := 0; writing.Err() == nil; n++ {
				time.Sleep(3 * time.Second) // virtual
				switch key := fmt.Appendf(nil, "k%03d", r.IntN(300)); n % 5 {
				case 4:
					i := r.IntN(3)
					cluster.Kill(i, 50)
					time.Sleep(2 * time.Second) // virtual
					if err := cluster.Run(i); err != nil {
						t.Error(err)
					}
				case 2:
					if id, err := ks.PartitionOf(writing, key); err == nil {
						_, _ = admin.New(client).MergePartition(writing, id)
					}
				default:
					_, _ = admin.New(client).SplitPartition(writing, "things", key)
				}
			}
		})
		f := newFollower(t)
		start := client.Timestamp()
		for position := start; writing.Err() == nil; position = f.progress {
			// What came after the last progress comes again.
			g := newFollower(t)
			g.progress, g.values, g.versions = position, maps.Clone(f.values), map[string]kv.Timestamp{}
			end := time.Now().Add(7 * time.Second)
			if err := g.follow(ctx, ks, func(c kv.Change) bool {
				return c.Kind == kv.ChangeProgress && time.Now().After(end)
			}, kv.Since(position)); err != nil {
				t.Fatal(err)
			}
			g.same(ctx, ks)
			f = g
		}
		working.Wait()
		last := client.Timestamp()
		g := newFollower(t)
		if err := g.follow(ctx, ks, upTo(last), kv.Since(start)); err != nil {
			t.Fatal(err)
		}
		g.same(ctx, ks)
		if len(g.changes) < 1000 {
			t.Errorf("%d changes", len(g.changes))
		}
		parts := map[uint64]bool{}
		for n := range 300 {
			id, err := ks.PartitionOf(ctx, fmt.Appendf(nil, "k%03d", n))
			if err != nil {
				t.Fatal(err)
			}
			parts[id] = true
		}
		if len(parts) < 5 {
			t.Errorf("there are only %d partitions", len(parts))
		}
	}, kv.Range(), kv.AutoSplit(false))
}

// TestChangesOfASpan: of the keys that were asked for, and no others.
func TestChangesOfASpan(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		start := client.Timestamp()
		for _, key := range []string{"a", "b1", "b2", "b3", "c"} {
			if _, err := ks.Put(ctx, []byte(key), []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
		f := newFollower(t)
		if err := f.follow(ctx, ks, upTo(client.Timestamp()), kv.Since(start), kv.Prefix([]byte("b")),
			kv.From([]byte("b2"))); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(f.values)); !slices.Equal(got, []string{"b2", "b3"}) {
			t.Errorf("told of %v", got)
		}
	}, kv.Hash(3))
}

// TestChangesTooOld: what garbage collection has taken is not passed over in silence; and a
// keyspace that is dropped ends its feeds.
func TestChangesTooOld(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		start := client.Timestamp()
		for range 3 {
			if _, err := ks.Put(ctx, []byte("a"), []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute) // virtual
		f := newFollower(t)
		err := f.follow(ctx, ks, upTo(client.Timestamp()), kv.Since(start))
		var e *kv.Error
		if !errors.Is(err, kv.ErrTimestampTooOld) || !errors.As(err, &e) || e.Timestamp != start ||
			e.Bound.LessEq(start) {
			t.Errorf("the feed ended with %v", err)
		}
		time.AfterFunc(10*time.Second, func() {
			if err := client.DropKeyspace(ctx, "things"); err != nil {
				t.Error(err)
			}
		})
		err = newFollower(t).follow(ctx, ks, func(kv.Change) bool { return false })
		if !errors.Is(err, kv.ErrKeyspaceNotFound) {
			t.Errorf("the feed ended with %v", err)
		}
	}, kv.GCWindow(time.Minute))
}

// TestChangesPassAStuckTransaction: a transaction whose client is cut off while it has prepared
// locks holds a feed up, and only until it is given up.
func TestChangesPassAStuckTransaction(t *testing.T) {
	changesCluster(t, func(ctx context.Context, cluster *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		locks, closeAll := stick(ctx, t, cluster, client)
		defer closeAll()
		if n := len(locks()); n != 2 {
			t.Fatalf("it has locks in %d partitions", n)
		}
		began := time.Now()
		written, err := ks.Put(ctx, []byte("beside"), []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		// held is until when a feed was not told what is above the locks, and they were there.
		var held time.Duration
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var looking sync.WaitGroup
		f, passed := newFollower(t), make(chan struct{})
		looking.Go(func() {
			for len(locks()) == 2 {
				select {
				case <-passed:
					return
				case <-time.After(100 * time.Millisecond): // virtual
					held = time.Since(began)
				}
			}
		})
		var took time.Duration
		err = f.follow(ctx, ks, func(c kv.Change) bool {
			if took == 0 && c.Kind == kv.ChangeProgress && written.LessEq(c.Timestamp) {
				took = time.Since(began)
				close(passed)
			}
			return c.Kind == kv.ChangeProgress && c.Timestamp.Time().After(began.Add(5*time.Second))
		}, kv.Since(kv.TimestampOf(began)))
		looking.Wait()
		if err != nil {
			t.Fatal(err)
		}
		// Without the locks it takes the closed lag, which is a second.
		if held < 2500*time.Millisecond || took < held-200*time.Millisecond || took > 20*time.Second {
			t.Errorf("the locks were there for %v, and the feed came past them after %v", held, took)
		}
		if f.values["beside"] != "1" || len(f.values) != 1 {
			t.Errorf("it was told %v", f.values)
		}
	}, kv.Range([]byte("m")))
}

// stick leaves a transaction with prepared locks in both partitions of "things", whose client is
// cut off. locks lists what is left of it; closeAll closes the clients.
func stick(ctx context.Context, t *testing.T, cluster *kvtest.Cluster,
	client *kv.Client) (locks func() []admin.LiveTransaction, closeAll func()) {
	t.Helper()
	var clients []*kv.Client
	closeAll = func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for after := time.Millisecond; after < 20*time.Millisecond; after += time.Millisecond {
		host := fmt.Sprintf("client-%d", 1+after/time.Millisecond)
		other, err := cluster.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		things := other.Keyspace("things")
		for _, key := range []string{"a", "z"} {
			if err := tx.Put(things, []byte(key+host), []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
		doomed, cancel := context.WithCancel(ctx)
		var committing sync.WaitGroup
		committing.Go(func() { _, _ = tx.Commit(doomed) })
		time.Sleep(after) // virtual
		cluster.Network().Isolate(host, memnet.Break)
		cancel()
		committing.Wait()
		clients = append(clients, other)
		time.Sleep(50 * time.Millisecond) // virtual
		locks = func() []admin.LiveTransaction {
			all, _, err := admin.New(client).LiveTransactions(ctx, "things", 10)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			return slices.DeleteFunc(all, func(l admin.LiveTransaction) bool {
				return l.ID != tx.ID() || l.State == "committed" || l.State == "aborted"
			})
		}
		if len(locks()) == 2 {
			return locks, closeAll
		}
	}
	closeAll()
	t.Fatal("no transaction was left with locks in both partitions")
	return nil, nil
}

// TestChangesOfAConsumer: a loop that goes by a name goes on where the last one of that name was,
// and what it has not taken is kept; one that was away for too long is told so.
func TestChangesOfAConsumer(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		put := func(value string) {
			t.Helper()
			if _, err := ks.Put(ctx, []byte("a"), []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		// loop takes changes up to now, and returns the values.
		loop := func() (values []string) {
			t.Helper()
			f := newFollower(t)
			// The progress after the last change counts as taken when another one is asked for.
			if err := f.follow(ctx, ks, upTo(client.Timestamp().Add(2*time.Second)),
				kv.Consumer("indexer", kv.KeepHistory(10*time.Minute))); err != nil {
				t.Fatal(err)
			}
			for _, c := range f.changes {
				values = append(values, string(c.Value))
			}
			return values
		}
		put("before")
		if got := loop(); len(got) > 0 && !slices.Equal(got, []string{"before"}) {
			t.Errorf("a new consumer was told %v", got)
		}
		put("1")
		put("2")
		if got := loop(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("it was told %v", got)
		}
		// What it has not taken is older than the GC window by now.
		put("3")
		put("4")
		time.Sleep(5 * time.Minute) // virtual
		if got := loop(); !slices.Equal(got, []string{"3", "4"}) {
			t.Errorf("after a while it was told %v", got)
		}
		info, err := ks.Consumer(ctx, "indexer")
		if err != nil || info.Keep != 10*time.Minute {
			t.Errorf("%+v, %v", info, err)
		}
		time.Sleep(20 * time.Minute) // virtual
		err = newFollower(t).follow(ctx, ks, func(kv.Change) bool { return true },
			kv.Consumer("indexer"))
		if !errors.Is(err, kv.ErrTimestampTooOld) || !strings.Contains(err.Error(), "indexer") {
			t.Errorf("after too long it ended with %v", err)
		}
	}, kv.GCWindow(time.Minute))
}

// TestConsumerIsOfItsKeys: a feed of other keys than those that a consumer was made with is
// refused, and takes nothing of it.
func TestConsumerIsOfItsKeys(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		one := func(options ...kv.ChangesOption) error {
			return newFollower(t).follow(ctx, ks, func(kv.Change) bool { return true },
				append(options, kv.Consumer("indexer"))...)
		}
		if err := one(kv.Prefix([]byte("a"))); err != nil {
			t.Fatal(err)
		}
		info, err := ks.Consumer(ctx, "indexer")
		if err != nil || string(info.From) != "a" || string(info.To) != "b" {
			t.Fatalf("%+v, %v", info, err)
		}
		if err := one(kv.From([]byte("a")), kv.To([]byte("b"))); err != nil {
			t.Errorf("the same keys: %v", err)
		}
		for name, options := range map[string][]kv.ChangesOption{"all": nil,
			"others": {kv.Prefix([]byte("c"))}, "fewer": {kv.Prefix([]byte("ab"))},
			"more": {kv.From([]byte("a"))}} {
			err := one(options...)
			if !errors.Is(err, kv.ErrInvalidArgument) ||
				!strings.Contains(err.Error(), `indexer is of the keys from "a" to "b"`) {
				t.Errorf("a feed of %s: %v", name, err)
			}
		}
		if after, err := ks.Consumer(ctx, "indexer"); err != nil || after.Position.Less(info.Position) {
			t.Errorf("it was at %s, and is %+v, %v", info.Position, after, err)
		}
		// By hand: the keys stay, unless it is reset.
		now := client.Timestamp()
		if info, err = ks.SetConsumer(ctx, "indexer", now, kv.ResetPosition()); err != nil ||
			string(info.From) != "a" {
			t.Errorf("%+v, %v", info, err)
		}
		if _, err = ks.SetConsumer(ctx, "indexer", now, kv.All()); !errors.Is(err,
			kv.ErrInvalidArgument) {
			t.Errorf("other keys: %v", err)
		}
		if _, err = ks.SetConsumer(ctx, "indexer", now, kv.Prefix([]byte("a")),
			kv.To([]byte("a"))); !errors.Is(err, kv.ErrInvalidArgument) {
			t.Errorf("no keys: %v", err)
		}
		if info, err = ks.SetConsumer(ctx, "indexer", now, kv.ResetPosition(),
			kv.Prefix([]byte("c"))); err != nil || string(info.From) != "c" || string(info.To) != "d" {
			t.Errorf("%+v, %v", info, err)
		}
		if err := one(kv.Prefix([]byte("c"))); err != nil {
			t.Error(err)
		}
	}, kv.Hash(2))
}

// TestOneOfTwoMakesAConsumer: of loops that make a consumer at the same time one does, and the
// others go on from where it begins: none moves it to its own.
func TestOneOfTwoMakesAConsumer(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		start := client.Timestamp()
		if _, err := ks.Put(ctx, []byte("a"), []byte("1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // virtual: what is above start is closed
		for n := range 20 {
			if _, err := ks.Put(ctx, []byte("a"), []byte("1")); err != nil {
				t.Fatal(err)
			}
			first, second := start, client.Timestamp()
			if n%2 == 1 {
				first, second = second, first
			}
			name := fmt.Sprint("c", n)
			var told [2]int
			var working sync.WaitGroup
			for i, since := range []kv.Timestamp{first, second} {
				working.Go(func() {
					f := newFollower(t)
					if err := f.follow(ctx, ks, func(kv.Change) bool { return true },
						kv.Consumer(name), kv.Since(since)); err != nil {
						t.Error(err)
					}
					told[i] = len(f.changes)
				})
			}
			working.Wait()
			if t.Failed() {
				return
			}
			if told[0] != told[1] {
				t.Fatalf("consumer %s begins in two places: %v were told", name, told)
			}
		}
	}, kv.Hash(1))
}

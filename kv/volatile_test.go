package kv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// incrementers are clients that increment keys under volatile locks: one in one phase, several in
// two.
type incrementers struct {
	mu sync.Mutex
	// acknowledged and unknown count, by key, the increments that were acknowledged, and those of
	// which nothing is known.
	acknowledged, unknown map[string]int
}

// increment adds one to the values of keys, in order.
func increment(ctx context.Context, client *kv.Client, keys ...string) error {
	ks := client.Keyspace("k")
	_, err := client.Update(ctx, func(tx *kv.Txn) error {
		for _, key := range keys {
			p, err := tx.GetForUpdate(ctx, ks, []byte(key))
			n := 0
			switch {
			case errors.Is(err, kv.ErrNotFound):
			case err != nil:
				return err
			default:
				if n, err = strconv.Atoi(string(p.Value)); err != nil {
					return err
				}
			}
			if err := tx.Put(ks, []byte(key), []byte(strconv.Itoa(n+1))); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// run increments until stop is closed.
func (x *incrementers) run(t *testing.T, client *kv.Client, stop <-chan struct{},
	pick func() []string) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		keys := pick()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := increment(ctx, client, keys...)
		cancel()
		x.mu.Lock()
		for _, key := range keys {
			switch {
			case err == nil:
				x.acknowledged[key]++
			case errors.Is(err, kv.ErrOutcomeUnknown):
				x.unknown[key]++
			default:
				t.Errorf("increment of %v: %v", keys, err)
			}
		}
		x.mu.Unlock()
	}
}

// Increments under volatile locks are all there, once each, while those in whose memory the locks
// are hand over, lose touch with the others, and lose their power.
func TestVolatileLocksLoseNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond, Seed: 1})
		checker := cluster.Client(t)
		if _, err := checker.CreateKeyspace(t.Context(), "k", kv.Range([]byte("m"))); err != nil {
			t.Fatal(err)
		}
		all := []string{"a", "z"} // one in each partition
		x := &incrementers{acknowledged: map[string]int{}, unknown: map[string]int{}}
		stop := make(chan struct{})
		var running sync.WaitGroup
		finish := sync.OnceFunc(func() {
			close(stop)
			running.Wait()
		})
		defer finish() // before the clients are closed, also if the test fails
		for i := range 6 {
			client := cluster.Client(t)
			random := rand.New(rand.NewPCG(1, uint64(i)))
			running.Go(func() {
				x.run(t, client, stop, func() []string {
					switch random.IntN(4) {
					case 0:
						return all
					default:
						return all[random.IntN(2):][:1]
					}
				})
			})
		}
		random := rand.New(rand.NewPCG(2, 0))
		for round := range 8 {
			time.Sleep(time.Second)
			if round%4 == 3 {
				down := 1 + random.IntN(2) // server 0 is the consistent core
				cluster.Kill(down, 50)
				time.Sleep(5 * time.Second)
				if err := cluster.Restart(down); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if round%4 == 1 {
				// The leaders are alone with the clients: what they propose is lost.
				cutLeaders(cluster)
				time.Sleep(5 * time.Second)
				cluster.HealAll()
				continue
			}
			// After a restart or a cut it takes a while until a node leads, and has another one to
			// hand over to.
			for begun := time.Now(); transferAll(cluster) == 0; time.Sleep(100 * time.Millisecond) {
				if time.Since(begun) > time.Minute {
					t.Fatal("no replica leads")
				}
			}
		}
		time.Sleep(5 * time.Second)
		finish()
		for _, key := range all {
			p, err := checker.Keyspace("k").Get(t.Context(), []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(string(p.Value))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d, %d acknowledged, %d unknown", key, n, x.acknowledged[key], x.unknown[key])
			if n < x.acknowledged[key] || n > x.acknowledged[key]+x.unknown[key] {
				t.Errorf(
					"%s is %d after %d acknowledged increments, and %d of which nothing is known",
					key, n, x.acknowledged[key], x.unknown[key])
			}
			if x.acknowledged[key] < 100 {
				t.Errorf("only %d increments of %s", x.acknowledged[key], key)
			}
		}
	})
}

// leaders are which node leads which partition in which term.
func leaders(cluster *kvtest.Cluster) (all string) {
	for i := range cluster.Servers() {
		for _, r := range cluster.Process(i).Replicas() {
			if r.Leads {
				all += fmt.Sprintf("%d in term %d of %d; ", r.Replica, r.Term, r.Partition)
			}
		}
	}
	return all
}

// transferAll has every leader hand over to another replica, and returns how many there were.
func transferAll(cluster *kvtest.Cluster) (handed int) {
	for i := range cluster.Servers() {
		for _, r := range cluster.Process(i).Replicas() {
			if !r.Leads {
				continue
			}
			for _, other := range cluster.Process((i + 1) % cluster.Servers()).Replicas() {
				if other.Partition == r.Partition {
					cluster.Process(i).TransferLeader(r.Partition, other.Replica)
					handed++
				}
			}
		}
	}
	return handed
}

// A function that takes its transaction back and fails, because of what it has read, tells of what
// is committed only.
func TestWhatARolledBackFunctionHasReadIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		if _, err := client.CreateKeyspace(ctx, "k", kv.Hash(1)); err != nil {
			t.Fatal(err)
		}
		if err := increment(ctx, client, "a"); err != nil {
			t.Fatal(err)
		}
		attempts := 0
		_, err := client.Update(ctx, func(tx *kv.Txn) error {
			p, err := tx.GetForUpdate(ctx, client.Keyspace("k"), []byte("a"))
			if err != nil {
				return err
			}
			if attempts++; attempts == 1 {
				// What was read is lost, for all that can be known: another one leads.
				changeLeaders(cluster)
			}
			tx.Rollback()
			return fmt.Errorf("found %s", p.Value)
		})
		if err == nil || err.Error() != "found 1" || attempts != 2 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
	})
}

// An attempt that has read under a lock what was on its way, and is lost, does not see that it is:
// its other reads say so instead.
func TestAnAttemptSeesOneState(t *testing.T) {
	reads := map[string]func(context.Context, *kv.Txn, *kv.Keyspace) (string, error){
		"scan": func(ctx context.Context, tx *kv.Txn, ks *kv.Keyspace) (value string, err error) {
			for p, err := range tx.Scan(ctx, ks) {
				if err != nil {
					return "", err
				}
				value = string(p.Value)
			}
			return value, nil
		},
		"get": func(ctx context.Context, tx *kv.Txn, ks *kv.Keyspace) (string, error) {
			p, err := tx.Get(ctx, ks, []byte("a"))
			return string(p.Value), err
		},
		"batch get": func(ctx context.Context, tx *kv.Txn, ks *kv.Keyspace) (string, error) {
			pairs, err := tx.BatchGet(ctx, ks, [][]byte{[]byte("a")})
			if err != nil {
				return "", err
			}
			return string(pairs[0].Value), nil
		},
	}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { seesOneState(t, read) })
		})
	}
}

func seesOneState(t *testing.T, read func(context.Context, *kv.Txn, *kv.Keyspace) (string, error)) {
	ctx := t.Context()
	cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
	first, second := cluster.Client(t), cluster.Client(t)
	if _, err := first.CreateKeyspace(ctx, "k", kv.Range()); err != nil {
		t.Fatal(err)
	}
	for _, client := range []*kv.Client{first, second} {
		if err := increment(ctx, client, "a"); err != nil { // both know the leader
			t.Fatal(err)
		}
	}
	cutLeaders(cluster)
	var running sync.WaitGroup
	defer running.Wait()
	locked := make(chan struct{})
	lockedOnce := sync.OnceFunc(func() { close(locked) })
	running.Go(func() {
		// The leader takes it, and no other node ever does.
		_, err := first.Update(ctx, func(tx *kv.Txn) error {
			defer lockedOnce()
			if _, err := tx.GetForUpdate(ctx, first.Keyspace("k"), []byte("a")); err != nil {
				return err
			}
			return tx.Put(first.Keyspace("k"), []byte("a"), []byte("3"))
		})
		if err != nil && !errors.Is(err, kv.ErrOutcomeUnknown) {
			t.Error(err)
		}
	})
	<-locked // the next to lock it gets what the first has put there
	before, attempts := leaders(cluster), 0
	_, err := second.Update(ctx, func(tx *kv.Txn) error {
		ks := second.Keyspace("k")
		p, err := tx.GetForUpdate(ctx, ks, []byte("a"))
		if err != nil {
			return err
		}
		if attempts++; attempts == 1 {
			if string(p.Value) != "3" {
				t.Errorf("found %s, not what is on its way", p.Value)
			}
			for now := before; now == before || now == ""; now = leaders(cluster) {
				time.Sleep(100 * time.Millisecond)
			}
			cluster.HealAll()
		}
		again, err := read(ctx, tx, ks)
		if err == nil && again != string(p.Value) {
			t.Errorf("attempt %d found %s under the lock, and %s afterwards", attempts, p.Value, again)
		}
		return err
	})
	if err != nil || attempts < 2 {
		t.Errorf("%d attempts: %v", attempts, err)
	}
}

// cutLeaders leaves every server that leads alone with the clients.
func cutLeaders(cluster *kvtest.Cluster) {
	for !leased(cluster) {
		time.Sleep(10 * time.Millisecond)
	}
	for i := range cluster.Servers() {
		for _, r := range cluster.Process(i).Replicas() {
			for other := range cluster.Servers() {
				if r.Leads && other != i {
					cluster.Cut(i, other, memnet.Stall)
					cluster.Cut(other, i, memnet.Stall)
				}
			}
		}
	}
}

// leased says whether every leader has its lease. One that was just elected has none, and answers
// nothing when it is cut off.
func leased(cluster *kvtest.Cluster) bool {
	for i := range cluster.Servers() {
		for _, r := range cluster.Process(i).Replicas() {
			if r.Leads && !r.Leased {
				return false
			}
		}
	}
	return true
}

// changeLeaders returns when every partition has been handed over.
func changeLeaders(cluster *kvtest.Cluster) {
	for before := leaders(cluster); leaders(cluster) == before; time.Sleep(100 * time.Millisecond) {
		transferAll(cluster)
	}
}

// An attempt that lost its locks with a leader is not lost to the next change of leader as well,
// nor one whose predecessor took long.
func TestALaterAttemptOutlivesLeaders(t *testing.T) {
	ways := map[string]func(t *testing.T, cluster *kvtest.Cluster, other *kv.Client){
		"a leader was lost": func(_ *testing.T, cluster *kvtest.Cluster, _ *kv.Client) {
			changeLeaders(cluster)
		},
		"it took long": func(t *testing.T, _ *kvtest.Cluster, other *kv.Client) {
			time.Sleep(1500 * time.Millisecond) // virtual time; more than between two heartbeats
			if err := increment(t.Context(), other, "seen"); err != nil {
				t.Error(err)
			}
		},
	}
	for name, first := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
				client, other := cluster.Client(t), cluster.Client(t)
				ks, err := client.CreateKeyspace(ctx, "k", kv.Range([]byte("m")))
				if err != nil {
					t.Fatal(err)
				}
				for _, key := range []string{"a", "seen"} {
					if err := increment(ctx, client, key); err != nil {
						t.Fatal(err)
					}
				}
				attempts := 0
				_, err = client.Update(ctx, func(tx *kv.Txn) error {
					if _, err := tx.Get(ctx, ks, []byte("seen")); err != nil {
						return err
					}
					if _, err := tx.GetForUpdate(ctx, ks, []byte("a")); err != nil {
						return err
					}
					if attempts++; attempts == 1 {
						first(t, cluster, other)
					} else {
						changeLeaders(cluster)
					}
					if err := tx.Put(ks, []byte("seen"), []byte("10")); err != nil {
						return err
					}
					return tx.Put(ks, []byte("a"), []byte("20"))
				})
				if err != nil || attempts != 2 {
					t.Errorf("%d attempts: %v", attempts, err)
				}
			})
		})
	}
}

package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// measured adds up a metric over registries: the value of a counter or gauge, or of a histogram
// what was observed, in all. label is the value of one of its labels, empty for all there are.
func measured(t *testing.T, registries []*prometheus.Registry, name, label string) (n float64) {
	t.Helper()
	for _, r := range registries {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.Metric {
				if label == "" || slices.ContainsFunc(m.Label,
					func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
					n += m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum() +
						m.GetGauge().GetValue()
				}
			}
		}
	}
	return n
}

// TestTransactionsAreMeasured: whatever gets in a transaction's way is counted by its reason, at
// the server and at the client, and how long a client waited is known, also if it was in vain.
func TestTransactionsAreMeasured(t *testing.T) {
	bubble(t, func(t *testing.T) {
		servers := make([]*prometheus.Registry, 3)
		c := kvtest.Start(t, kvtest.Options{Latency: latency, Configure: func(server int,
			sc *embedded.ServerConfig) {
			servers[server] = prometheus.NewRegistry()
			sc.Registry = servers[server]
		}})
		own := prometheus.NewRegistry()
		client := c.Client(t, kvprom.Metrics(own))
		clients := []*prometheus.Registry{own}
		ks := create(t, client, "here", kv.Hash(4))
		ctx := t.Context()
		begin := func() *kv.Txn {
			t.Helper()
			tx, err := client.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return tx
		}
		lock := func(tx *kv.Txn, key string) {
			t.Helper()
			if _, err := tx.GetForUpdate(ctx, ks, []byte(key)); err != nil &&
				!errors.Is(err, kv.ErrNotFound) {
				t.Fatal(err)
			}
		}
		// rises runs what is to make a metric rise by at least so much.
		rises := func(of []*prometheus.Registry, name, label string, by float64, f func()) {
			t.Helper()
			before := measured(t, of, name, label)
			f()
			for deadline := time.Now().Add(10 * time.Second); measured(t, of, name,
				label) < before+by; time.Sleep(100 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Errorf("%s %s rose from %v to %v, and not by %v", name, label, before,
						measured(t, of, name, label), by)
					return
				}
			}
		}

		if sum := measured(t, servers, "tidemark_node_clock_bound_seconds",
			""); sum != 3*hlc.DefaultMaxOffset.Seconds() {
			t.Errorf("three servers have bounds of %v s in all", sum)
		}
		older, younger := begin(), begin()
		lock(younger, "a")
		rises(servers, "tidemark_txn_pushes_total", "abort", 1, func() {
			rises(servers, "tidemark_txn_aborts_total", "wounded", 1, func() { lock(older, "a") })
		})
		rises(clients, "tidemark_client_txn_restarts_total", "wounded", 1, func() {
			if err := younger.Put(ks, []byte("a"), nil); err == nil {
				_, err = younger.Commit(ctx)
				if !errors.Is(err, kv.ErrTransactionAborted) {
					t.Errorf("the younger one: %v", err)
				}
			}
			again, err := younger.Again(ctx)
			if err != nil {
				t.Fatal(err)
			}
			again.Rollback()
		})
		rises(servers, "tidemark_txn_lock_waits_total", "write", 1, func() {
			rises(servers, "tidemark_txn_lock_wait_seconds", "", 3.5, func() {
				bounded, cancel := context.WithTimeout(ctx, 4*time.Second)
				defer cancel()
				if _, err := ks.Put(bounded, []byte("a"), nil); !errors.Is(err, kv.ErrConflict) {
					t.Errorf("a put of a locked key: %v", err)
				}
			})
		})
		rises(servers, "tidemark_txn_aborts_total", "rolled_back", 1, older.Rollback)
		rises(servers, "tidemark_txn_aborts_total", "abandoned", 1, func() {
			life, die := context.WithCancel(ctx)
			dead, err := client.Begin(life)
			if err != nil {
				t.Fatal(err)
			}
			lock(dead, "b")
			die()
		})
		rises(servers, "tidemark_txn_conflicts_total", "", 1, func() {
			rises(clients, "tidemark_client_txn_restarts_total", "conflict", 1, func() {
				runs := 0
				if _, err := client.Update(ctx, func(tx *kv.Txn) error {
					if _, err := tx.Get(ctx, ks, []byte("c")); err != nil &&
						!errors.Is(err, kv.ErrNotFound) {
						return err
					}
					if runs++; runs == 1 {
						put(t, ks, "c", "in between")
					}
					return tx.Put(ks, []byte("c"), nil)
				}); err != nil || runs != 2 {
					t.Errorf("%v after %d runs", err, runs)
				}
			})
		})
		// A commit in one partition is seen by a scan before its time: both wait.
		rises(servers, "tidemark_txn_commit_wait_seconds", "", hlc.DefaultMaxOffset.Seconds()*3/2,
			func() {
				rises(servers, "tidemark_txn_commit_wait_reads_total", "", 1, func() {
					var writing sync.WaitGroup
					writing.Go(func() {
						if _, err := client.Update(ctx,
							func(tx *kv.Txn) error { return tx.Put(ks, []byte("f"), nil) },
							kv.CommitWait()); err != nil {
							t.Error(err)
						}
					})
					for found := false; !found; {
						for p, err := range ks.Scan(ctx, kv.Prefix([]byte("f"))) {
							if err != nil {
								t.Fatal(err)
							}
							found = found || string(p.Key) == "f"
						}
					}
					writing.Wait()
				})
			})
		// Readers meet the locks of a commit that is decided, and that no client is to hear of yet.
		// Its timestamp is of a clock that is ahead of those of other leaders, whose readers have
		// to move up to it.
		c.Clock(1).SetOffset(hlc.DefaultMaxOffset / 2)
		defer c.Clock(1).SetOffset(0)
		reader := c.Client(t).Keyspace("here")
		rises(servers, "tidemark_txn_commit_wait_seconds", "", hlc.DefaultMaxOffset.Seconds()/2,
			func() {
				rises(servers, "tidemark_txn_lock_waits_total", "read", 1, func() {
					rises(servers, "tidemark_txn_pushes_total", "timestamp", 1, func() {
						rises(servers, "tidemark_txn_read_restarts_total", "commit", 1, func() {
							decided := measured(t, servers, "tidemark_txn_commits_total", "two")
							var writing sync.WaitGroup
							writing.Go(func() {
								if _, err := client.Update(ctx, func(tx *kv.Txn) error {
									var errs []error
									for _, key := range []string{"d0", "d1", "d2", "d3", "d4", "d5",
										"d6", "d7"} {
										errs = append(errs, tx.Put(ks, []byte(key), nil))
									}
									return errors.Join(errs...)
								}, kv.CommitWait()); err != nil {
									t.Error(err)
								}
							})
							// Not before it is decided: a reading without the keys would bring the clocks of
							// the others up to the one that is ahead.
							for measured(t, servers, "tidemark_txn_commits_total", "two") == decided {
								time.Sleep(time.Millisecond) // virtual
							}
							for i := range 8 {
								writing.Go(func() {
									for err := error(kv.ErrNotFound); errors.Is(err,
										kv.ErrNotFound); {
										_, err = reader.Get(ctx, fmt.Appendf(nil, "d%d", i))
									}
								})
							}
							writing.Wait()
						})
					})
				})
			})
	})
}

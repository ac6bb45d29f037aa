package kvtest_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// transfers are clients that commit one transaction after the other. Each writes the same number to
// two keys, which lie far apart.
type transfers struct {
	wait sync.WaitGroup
	stop chan struct{}
	// acknowledged is the last number of each client.
	acknowledged [2]atomic.Int64
}

func pairKeys(client int) (low, high []byte) {
	return fmt.Appendf(nil, "a%03d-pair", client), fmt.Appendf(nil, "z%03d-pair", client)
}

// transfer starts the clients. They end with the test, or before.
func transfer(t *testing.T, c *kvtest.Cluster, keyspace string) *transfers {
	w := &transfers{stop: make(chan struct{})}
	for i := range w.acknowledged {
		client := c.Client(t)
		ks := client.Keyspace(keyspace)
		low, high := pairKeys(i)
		w.wait.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-w.stop:
					return
				default:
				}
				if _, err := client.Update(t.Context(), func(tx *kv.Txn) error {
					if err := tx.Put(ks, low, fmt.Append(nil, n)); err != nil {
						return err
					}
					return tx.Put(ks, high, fmt.Append(nil, n))
				}); err != nil {
					t.Error(err)
					return
				}
				w.acknowledged[i].Store(n)
			}
		})
	}
	eventually(t, "first commits",
		func() bool { return w.acknowledged[0].Load() > 0 && w.acknowledged[1].Load() > 0 })
	return w
}

func (w *transfers) end() {
	close(w.stop)
	w.wait.Wait()
}

// sees checks that what scan yields is all of one moment, and nothing older than what was
// acknowledged before.
func (w *transfers) sees(rows int, scan iter.Seq2[kv.Pair, error]) error {
	var least [2]int64
	for i := range least {
		least[i] = w.acknowledged[i].Load()
	}
	found := make(map[string]string)
	for pair, err := range scan {
		if err != nil {
			return fmt.Errorf("after %d rows: %w", len(found), err)
		}
		found[string(pair.Key)] = string(pair.Value)
	}
	if len(found) != rows+2*len(least) {
		return fmt.Errorf("%d rows of %d", len(found), rows+2*len(least))
	}
	for i := range least {
		low, high := pairKeys(i)
		var n int64
		if _, err := fmt.Sscan(found[string(low)], &n); err != nil || n < least[i] ||
			found[string(low)] != found[string(high)] {
			return fmt.Errorf("client %d: %q and %q, of which %d was acknowledged before", i,
				found[string(low)], found[string(high)], least[i])
		}
	}
	return nil
}

// fillRows writes rows, half of them between the keys of pairKeys.
func fillRows(t *testing.T, client *kv.Client, ks *kv.Keyspace, rows int) {
	t.Helper()
	for from := 0; from < rows; from += 100 {
		if _, err := client.Update(t.Context(), func(tx *kv.Txn) error {
			for i := from; i < min(rows, from+100); i++ {
				if err := tx.Put(ks, fmt.Appendf(nil, "%c%03d-row", "az"[i%2], i/2),
					[]byte("row")); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScansEndUnderTransactions: scans and counts over several partitions end, while others commit
// transactions over these partitions all the time. What they yield is of one moment, and misses
// nothing that was acknowledged before they began.
func TestScansEndUnderTransactions(t *testing.T) {
	const rows, scans, limit = 300, 12, 2 * time.Second
	layouts := map[string]kv.KeyspaceOption{"range": kv.Range([]byte("m")), "hash": kv.Hash(4)}
	ways := map[string][]kv.ScanOption{"forward": nil, "reverse": {kv.Reverse()}}
	for layout, option := range layouts {
		for way, options := range ways {
			t.Run(layout+" "+way, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := kvtest.Start(t, kvtest.Options{Latency: latency})
					client := c.Client(t)
					ks := create(t, client, "things", option)
					fillRows(t, client, ks, rows)
					w := transfer(t, c, "things")
					defer w.end()
					long := append(options[:len(options):len(options)], kv.PageSize(7))
					kinds := []struct {
						name string
						run  func(context.Context) error
					}{
						{"long scan", func(ctx context.Context) error {
							return w.sees(rows, ks.Scan(ctx, long...))
						}},
						{"short scan", func(ctx context.Context) error {
							return w.sees(rows, ks.Scan(ctx, options...))
						}},
						{"count", func(ctx context.Context) error {
							n, err := ks.Count(ctx)
							if err == nil && n != rows+4 {
								err = fmt.Errorf("it counted %d", n)
							}
							return err
						}},
						{"long scan of a view", func(ctx context.Context) error {
							return client.View(ctx,
								func(s *kv.Snapshot) error {
									return w.sees(rows, s.Scan(ctx, ks, long...))
								})
						}},
					}
					for _, kind := range kinds {
						failed, tried, began := 0, 0, time.Now()
						var last error
						for ; tried < scans && failed < scans/4; tried++ {
							ctx, cancel := context.WithTimeout(t.Context(), limit)
							if err := kind.run(ctx); err != nil {
								failed, last = failed+1, err
							}
							cancel()
						}
						t.Logf("%s: each took %v", kind.name, time.Since(began)/time.Duration(
							tried))
						if failed > 0 {
							t.Errorf("%s: %d of %d failed; the last said: %v", kind.name, failed,
								tried, last)
						}
					}
				})
			})
		}
	}
}

// TestScanEndsThoughLeadersChange: partitions change their leaders while a scan over them runs, and
// transactions go on. The scan ends with all rows of one moment.
func TestScanEndsThoughLeadersChange(t *testing.T) {
	const rows = 300
	for name, option := range map[string]kv.KeyspaceOption{"range": kv.Range([]byte("m")),
		"hash": kv.Hash(4)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Latency: latency})
				client := c.Client(t)
				ks := create(t, client, "things", option)
				fillRows(t, client, ks, rows)
				w := transfer(t, c, "things")
				defer w.end()
				for round := range 4 {
					changed := 0
					scan := func(yield func(kv.Pair, error) bool) {
						n := 0
						for pair, err := range ks.Scan(t.Context(), kv.PageSize(7)) {
							if n++; n%100 == 50 {
								for server := range c.Servers() {
									for _, partition := range ledBy(c, server) {
										transferLeadership(t, c, partition, (server+1+round%2)%3)
										changed++
									}
								}
							}
							if !yield(pair, err) {
								return
							}
						}
					}
					if err := w.sees(rows, scan); err != nil {
						t.Errorf("round %d, with %d changes: %v", round, changed, err)
					}
					if changed == 0 {
						t.Error("no leader has changed")
					}
				}
			})
		})
	}
}

// TestScanSeesWhatAFasterClockAcknowledged: the servers' clocks are apart, within the bound, and
// clients whose sessions know nothing of one another write and scan: every scan sees what was
// acknowledged before, and nothing that is written after its first row.
func TestScanSeesWhatAFasterClockAcknowledged(t *testing.T) {
	const rows = 60
	for name, option := range map[string]kv.KeyspaceOption{"range": kv.Range([]byte("m")),
		"hash": kv.Hash(4)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				admin := c.Client(t)
				fillRows(t, admin, create(t, admin, "things", option), rows)
				c.Clock(3).SetOffset(-2 * bound / 5)
				c.Clock(5).SetOffset(2 * bound / 5)
				time.Sleep(5 * time.Second)
				writer := c.Client(t).Keyspace("things")
				low, high := []byte("a000-row"), []byte("z029-row")
				for round := range 30 {
					reader := c.Client(t).Keyspace("things")
					value := fmt.Append(nil, round)
					for _, key := range [][]byte{low, high} {
						if _, err := writer.Put(t.Context(), key, value); err != nil {
							t.Fatal(err)
						}
					}
					n := 0
					for pair, err := range reader.Scan(t.Context(), kv.PageSize(7)) {
						if err != nil {
							t.Fatal(err)
						}
						if n++; n == 1 {
							if _, err := writer.Put(t.Context(), high,
								[]byte("later")); err != nil {
								t.Fatal(err)
							}
						}
						if (string(pair.Key) == string(low) || string(pair.Key) == string(high)) &&
							string(pair.Value) != string(value) {
							t.Fatalf("round %d: %s is %q", round, pair.Key, pair.Value)
						}
					}
					if n != rows {
						t.Fatalf("round %d: %d rows", round, n)
					}
				}
			})
		})
	}
}

// TestViewsEndUnderTransactions: a View that reads key by key what others change all the time, and
// so cannot move its moment, ends.
func TestViewsEndUnderTransactions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency})
		client := c.Client(t)
		ks := create(t, client, "things", kv.Range([]byte("m")))
		fillRows(t, client, ks, 100)
		w := transfer(t, c, "things")
		defer w.end()
		for range 5 {
			attempts := 0
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err := client.View(ctx, func(s *kv.Snapshot) error {
				attempts++
				for range 20 {
					for i := range w.acknowledged {
						low, high := pairKeys(i)
						var values [2]string
						for j, key := range [][]byte{low, high} {
							pair, err := s.Get(ctx, ks, key)
							if err != nil {
								return err
							}
							values[j] = string(pair.Value)
						}
						if values[0] != values[1] {
							return fmt.Errorf("client %d: %q", i, values)
						}
					}
				}
				return nil
			})
			cancel()
			if err != nil {
				t.Fatalf("after %d attempts: %v", attempts, err)
			}
			t.Logf("%d attempts", attempts)
		}
	})
}

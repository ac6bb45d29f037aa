package kvtest_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestNobodySeesACommitBeforeItsTime: however it is read, what a transaction with commit wait has
// written, or deleted, comes to light when every clock has passed its timestamp, and not before.
// The clocks agree here, and no server knows that.
func TestNobodySeesACommitBeforeItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency})
		writer, reader := c.Client(t), c.Client(t)
		ks := create(t, writer, "here", kv.Hash(4))
		if _, err := ks.Put(t.Context(), []byte("gone"), []byte("v")); err != nil {
			t.Fatal(err)
		}
		if keys.HashPartition([]byte("new"), 4) == keys.HashPartition([]byte("gone"), 4) {
			t.Fatal("both keys are in one partition")
		}
		ctx := t.Context()
		seen := reader.Keyspace("here")
		// Each says whether it sees the transaction's effect.
		ways := map[string]func() (bool, error){
			"get": func() (bool, error) {
				_, err := seen.Get(ctx, []byte("new"))
				if errors.Is(err, kv.ErrNotFound) {
					return false, nil
				}
				return err == nil, err
			},
			"get of what is deleted": func() (bool, error) {
				_, err := seen.Get(ctx, []byte("gone"))
				if errors.Is(err, kv.ErrNotFound) {
					return true, nil
				}
				return false, err
			},
			"batch get": func() (bool, error) {
				pairs, err := seen.BatchGet(ctx, [][]byte{[]byte("new"), []byte("gone")})
				return err == nil && !pairs[0].Version.IsZero(), err
			},
			"scan": func() (found bool, _ error) {
				for p, err := range seen.Scan(ctx) {
					if err != nil {
						return false, err
					}
					found = found || string(p.Key) == "new"
				}
				return found, nil
			},
			"view": func() (found bool, _ error) {
				return found, reader.View(ctx, func(s *kv.Snapshot) error {
					pairs, err := s.BatchGet(ctx, seen, [][]byte{[]byte("new")})
					found = err == nil && !pairs[0].Version.IsZero()
					return err
				})
			},
		}
		for name, way := range ways {
			for _, phases := range []int{1, 2} {
				if _, err := writer.Update(ctx, func(tx *kv.Txn) error {
					return errors.Join(tx.Delete(ks, []byte("new")), tx.Put(ks, []byte("gone"),
						[]byte("v")))
				}); err != nil {
					t.Fatal(err)
				}
				var at kv.Timestamp
				var mu sync.Mutex // of at
				var writing sync.WaitGroup
				writing.Go(func() {
					done, err := writer.Update(ctx, func(tx *kv.Txn) error {
						var err error
						if deletes := name == "get of what is deleted"; deletes || phases == 2 {
							err = tx.Delete(ks, []byte("gone"))
							if deletes && phases == 1 {
								return err
							}
						}
						return errors.Join(err, tx.Put(ks, []byte("new"), []byte("v")))
					}, kv.CommitWait())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					at = done
				})
				var first time.Time
				for first.IsZero() {
					found, err := way()
					if err != nil {
						t.Fatal(name, err)
					}
					if found {
						first = time.Now()
					}
				}
				writing.Wait()
				if early := first.UnixNano() - int64(hlc.DefaultMaxOffset) - at.Wall; early <= 0 {
					t.Errorf("%s, %d phases: seen %s before every clock has passed %s", name,
						phases, time.Duration(-early), at)
				}
			}
		}
	})
}

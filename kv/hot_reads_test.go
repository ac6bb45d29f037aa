package kv_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestReadersOfAHotKeyDoNotStarveItsWriter: a transaction over several partitions, which has read
// something that its commit validates, writes a key that many clients get all the time. Each of
// them that meets its lock has it commit later, and validate again.
func TestReadersOfAHotKeyDoNotStarveItsWriter(t *testing.T) {
	for _, latency := range []time.Duration{300 * time.Microsecond, 2 * time.Millisecond,
		40 * time.Millisecond} {
		t.Run(latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cluster := kvtest.Start(t, kvtest.Options{Latency: latency})
				client, reader := cluster.Client(t), cluster.Client(t)
				ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(8), kv.Replicas(1))
				if err != nil {
					t.Fatal(err)
				}
				reading, stop := context.WithCancel(ctx)
				var readers sync.WaitGroup
				for i := range 20 {
					readers.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond) // so that one comes after the other
						for reading.Err() == nil {
							_, err := reader.Keyspace("k").Get(reading, []byte("hot"))
							if err != nil && !errors.Is(err, kv.ErrNotFound) && reading.Err() == nil {
								t.Error(err)
							}
							time.Sleep(time.Millisecond)
						}
					})
				}
				for range 5 {
					// In calm 2 s are enough for everything.
					ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
					if _, err := client.Update(ctx, func(tx *kv.Txn) error {
						for _, key := range []string{"r1", "r2", "r3"} {
							if _, err := tx.BatchGet(ctx, ks, [][]byte{[]byte(key)}); err != nil {
								return err
							}
						}
						for _, key := range []string{"hot", "w2", "w3", "w4"} {
							if err := tx.Put(ks, []byte(key), []byte("v")); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						t.Error(err)
					}
					cancel()
				}
				stop()
				readers.Wait()
			})
		})
	}
}

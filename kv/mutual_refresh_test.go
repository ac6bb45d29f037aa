package kv_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestCommitsThatReadOneAnothersKeys: clients read a span over several partitions, and each writes
// another key of it. Of two that commit at a time each has to move above what the other one has
// read, and none of them does so for ever.
func TestCommitsThatReadOneAnothersKeys(t *testing.T) {
	for _, clients := range []int{2, 3, 6} {
		t.Run(fmt.Sprintf("%d clients", clients), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cluster := kvtest.Start(t, kvtest.Options{Latency: 300 * time.Microsecond})
				if _, err := cluster.Client(t).CreateKeyspace(ctx, "k", kv.Hash(8),
					kv.Replicas(1)); err != nil {
					t.Fatal(err)
				}
				all := make([]*kv.Client, clients)
				for i := range all {
					all[i] = cluster.Client(t)
				}
				for round := range 100 {
					var commits sync.WaitGroup
					for i, client := range all {
						commits.Go(func() {
							// They are a little apart, so that they meet in all steps of one
							// another.
							time.Sleep(time.Duration(i*round) * 10 * time.Microsecond)
							ks, attempts := client.Keyspace("k"), 0
							if _, err := client.Update(ctx, func(tx *kv.Txn) error {
								attempts++
								for _, err := range tx.Scan(ctx, ks) {
									if err != nil {
										return err
									}
								}
								return tx.Put(ks, fmt.Appendf(nil, "key-%d", i),
									strconv.AppendInt(nil, int64(round), 10))
							}); err != nil {
								t.Error(err)
							} else if attempts > 2*mostAttempts {
								t.Errorf("client %d needed %d attempts", i, attempts)
							}
						})
					}
					if commits.Wait(); t.Failed() {
						t.Fatalf("in round %d", round)
					}
				}
			})
		})
	}
}

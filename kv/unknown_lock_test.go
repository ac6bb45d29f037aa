package kv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A transaction that was never told to commit is not committed, whatever is unknown of its locks.
func TestAnUnknownLockIsNoUnknownCommit(t *testing.T) {
	for _, forUpdate := range []bool{false, true} {
		t.Run(fmt.Sprintf("for update %v", forUpdate), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
				c.AddKeyspace("hash", 8)
				client := c.open()
				defer client.Close()
				ks := client.Keyspace("hash")
				c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
					if r.GetEndTransaction().GetCommit() {
						t.Error("it was asked to commit")
					}
					return fakeserver.Fault{Unknown: r.GetPrepare() != nil}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				tx, err := client.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if forUpdate {
					_, err = tx.GetForUpdate(ctx, ks, []byte("a"))
				} else {
					for _, key := range []string{"a", "b"} {
						if err := tx.Put(ks, []byte(key), []byte("1")); err != nil {
							t.Fatal(err)
						}
					}
					_, err = tx.Commit(ctx)
				}
				if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

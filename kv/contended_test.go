package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestLocksAhead: what an attempt has read and written before it failed, the next one locks before its function runs, in the order of the
// keys, and does not ask for again.
func TestLocksAhead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.addKeyspace("hash", 8)
		client, other := c.open(), c.open()
		defer client.Close()
		defer other.Close()
		var locked []string
		gets := 0
		c.play(func(_ *fakeNode, r *kvpb.Request) fault {
			if r.GetPrepare().GetVolatile() {
				locked = append(locked, string(r.GetPrepare().Mutations[0].Key))
			}
			if r.GetGet() != nil {
				gets++
			}
			return fault{}
		})
		attempts := 0
		disturb := func(ctx context.Context) error {
			_, err := other.Update(ctx, increment(ctx, other.Keyspace("hash"), "b"))
			return err
		}
		ks := client.Keyspace("hash")
		_, err := client.Update(ctx, func(tx *Txn) error {
			if attempts++; attempts == 2 && !slices.Equal(locked, []string{"a", "b"}) {
				t.Errorf("locked %q before the second attempt", locked)
			}
			before := gets
			if _, err := tx.Get(ctx, ks, []byte("only read")); !errors.Is(err, ErrNotFound) {
				return fmt.Errorf("read of nothing: %v", err)
			}
			if err := errors.Join(increment(ctx, ks, "b")(tx), increment(ctx, ks, "a")(tx)); err != nil {
				return err
			}
			if attempts == 1 {
				return disturb(ctx)
			}
			if gets != before+1 {
				t.Errorf("the second attempt asks %d times", gets-before)
			}
			return nil
		})
		if err != nil || attempts != 2 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
		for key, want := range map[string]string{"a": "1", "b": "2"} {
			if p, err := ks.Get(ctx, []byte(key)); err != nil || string(p.Value) != want {
				t.Errorf("%s: %s, %v", key, p.Value, err)
			}
		}
	})
}

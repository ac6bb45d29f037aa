package kv

import (
	"context"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestHoldIsRefused: a transaction whose spans are not held, by servers of an earlier version or
// such as hold too much, goes on without: it asks before each attempt from the third on, for what
// the one before has read, and ends when nothing is in the way.
func TestHoldIsRefused(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("range", 0, "m")
		client := c.open()
		defer client.Close()
		var asked []string
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			for _, s := range r.GetPrepare().GetHoldSpans() {
				asked = append(asked, fmt.Sprintf("%s:%s", s.Start, s.End))
			}
			return fakeserver.Fault{}
		})
		ks := client.Keyspace("range")
		attempts := 0
		_, err := client.Update(ctx, func(tx *Txn) error {
			attempts++
			if want := 2 * max(0, attempts-2); len(asked) != want {
				t.Errorf("before attempt %d %d spans were asked for: %q", attempts, len(asked), asked)
			}
			n, err := tx.Count(ctx, ks, From([]byte("b")), To([]byte("x")))
			if err != nil {
				return err
			}
			if attempts < 5 {
				// By the same client: the transaction, which comes later in its session, has to commit
				// above it. Above another client's it need not.
				if _, err := ks.Put(ctx, fmt.Appendf(nil, "c%d", attempts), nil); err != nil {
					return err
				}
			}
			return tx.Put(ks, []byte("z"), fmt.Append(nil, n))
		})
		if err != nil || attempts != 5 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
		for i, span := range asked {
			if want := []string{"b:m", "m:x"}[i%2]; span != want {
				t.Errorf("asked for %q, want %q", span, want)
			}
		}
	})
}

// TestOnlyWhatWasReadAndFailedOverIsHeld: a key that is read and written is locked, as ever, and
// nothing is held for it.
func TestOnlyWhatWasReadAndFailedOverIsHeld(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := context.Background()
		c.AddKeyspace("range", 0)
		client, other := c.open(), c.open()
		defer client.Close()
		defer other.Close()
		held := 0
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			held += len(r.GetPrepare().GetHoldSpans())
			return fakeserver.Fault{}
		})
		ks := client.Keyspace("range")
		attempts := 0
		_, err := client.Update(ctx, func(tx *Txn) error {
			attempts++
			if _, err := tx.Count(ctx, ks, Prefix([]byte("quiet/"))); err != nil {
				return err
			}
			if err := increment(ctx, ks, fmt.Sprintf("n%d", attempts))(tx); err != nil {
				return err
			}
			if attempts < 6 {
				_, err := other.Update(ctx,
					increment(ctx, other.Keyspace("range"), fmt.Sprintf("n%d", attempts)))
				return err
			}
			return nil
		})
		if err != nil || attempts != 6 || held != 0 {
			t.Errorf("%d attempts, %d spans held: %v", attempts, held, err)
		}
	})
}

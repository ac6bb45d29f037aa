package kv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Where clocks keep nodes from serving, no error says that nodes are down, or that they have too
// much to do.
func TestClockFaultsAreCalledSo(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("h", 2)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("h")
		must[Timestamp](t)(ks.Put(t.Context(), []byte("k"), nil))
		// The connections break once, and then every node answers that it does not know what time
		// it is.
		c.Set(func() {
			for _, n := range c.Nodes {
				n.Timeless = 1 << 20
			}
		})
		c.Play(func(*fakeserver.Node, *kvpb.Request) fakeserver.Fault {
			return fakeserver.Fault{BreakBefore: true}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := ks.Get(ctx, []byte("k"))
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNoQuorum) ||
			!strings.Contains(err.Error(), "clock") || strings.Contains(err.Error(), "down") {
			t.Errorf("%v\nwant that clocks are to blame", err)
		}
	})
	early := wrap("get", "k", nil,
		&route.Error{Code: kvpb.ErrorCode_OVERLOADED, Why: kvpb.ErrorCause_CAUSE_CLOCKS,
			Message: "the read is ahead of this server's clock"})
	if errors.Is(early, ErrOverloaded) || !errors.Is(early, ErrUnavailable) ||
		!strings.Contains(early.Error(), "check the time synchronisation") {
		t.Errorf("%v\nwant that clocks are to blame", early)
	}
}

// The text of a cancelled call says so in words, and errors.Is finds the context's error.
func TestCancelledCallsSaySo(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("h", 2)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("h")
		key := []byte("k")
		must[Timestamp](t)(ks.Put(t.Context(), key, nil))
		calls := map[string]func(context.Context) error{
			"put":    func(ctx context.Context) error { _, err := ks.Put(ctx, key, nil); return err },
			"get":    func(ctx context.Context) error { _, err := ks.Get(ctx, key); return err },
			"delete": func(ctx context.Context) error { _, err := ks.Delete(ctx, key); return err },
			"count":  func(ctx context.Context) error { _, err := ks.Count(ctx); return err },
			"batch": func(ctx context.Context) error {
				_, err := ks.Batch().Put(key, nil).Commit(ctx)
				return err
			},
			"scan": func(ctx context.Context) error {
				for _, err := range ks.Scan(ctx) {
					return err
				}
				return nil
			},
			"update": func(ctx context.Context) error {
				_, err := client.Update(ctx, func(tx *Txn) error { return tx.Put(ks, key, nil) })
				return err
			},
			"update of two": func(ctx context.Context) error {
				_, err := client.Update(ctx, func(tx *Txn) error {
					return errors.Join(tx.Put(ks, key, nil), tx.Put(ks, []byte("l"), nil),
						tx.Put(ks, []byte("m"), nil))
				})
				return err
			},
			"view": func(ctx context.Context) error {
				return client.View(ctx, func(v *Snapshot) error {
					_, err := v.Get(ctx, ks, key)
					return err
				})
			},
			"drop": func(ctx context.Context) error { return client.DropKeyspace(ctx, "ghost") },
		}
		for name, call := range calls {
			for _, when := range []string{"before", "during"} {
				ctx, cancel := context.WithCancel(t.Context())
				if when == "before" {
					cancel()
				} else {
					if name == "drop" {
						cancel()
						continue
					}
					c.Play(func(*fakeserver.Node, *kvpb.Request) fakeserver.Fault {
						return fakeserver.Fault{Swallow: true}
					})
					time.AfterFunc(time.Second, cancel)
				}
				err := call(ctx)
				cancel()
				c.Play(nil)
				if !errors.Is(err, context.Canceled) ||
					strings.Contains(err.Error(), "context canceled") ||
					!strings.Contains(err.Error(), "the call was cancelled") {
					t.Errorf("%s, cancelled %s: %v", name, when, err)
				}
			}
		}
	})
}

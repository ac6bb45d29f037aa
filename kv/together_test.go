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

// spread fills a hash keyspace and returns its keys.
func spread(t *testing.T, ks *Keyspace, n int) (all [][]byte) {
	for i := range n {
		all = append(all, fmt.Appendf(nil, "k%03d", i))
		must[Timestamp](t)(ks.Put(t.Context(), all[i], all[i]))
	}
	return all
}

// viewAll reads keys in a View and checks that each has itself as its value, but for those that
// want says.
func viewAll(ctx context.Context, client *Client, ks *Keyspace, all [][]byte,
	want map[string]string) (at Timestamp, err error) {
	err = client.View(ctx, func(s *Snapshot) error {
		pairs, err := s.BatchGet(ctx, ks, all)
		if err != nil {
			return err
		}
		for i, p := range pairs {
			value, other := want[string(all[i])]
			if !other {
				value = string(all[i])
			}
			if string(p.Key) != string(all[i]) || string(p.Value) != value {
				return fmt.Errorf("key %s: read %q of %q, want %q", all[i], p.Value, p.Key, value)
			}
		}
		at = s.Timestamp()
		return nil
	})
	return at, err
}

// What a call wants of the partitions of one node is one message.
func TestEachNodeGetsOneMessage(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 24)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		all := spread(t, ks, 100)
		count := func(kind string, f func() error) {
			t.Helper()
			before := c.MessagesWith(kind)
			if err := f(); err != nil {
				t.Error(err)
			}
			if n := c.MessagesWith(kind) - before; n != 3 {
				t.Errorf("%d messages with a %s, want 3", n, kind)
			}
		}
		count("batchget", func() error { _, err := viewAll(ctx, client, ks, all, nil); return err })
		count("prepare", func() error {
			_, err := client.Update(ctx, func(tx *Txn) error {
				for _, key := range all {
					if err := tx.Put(ks, key, key); err != nil {
						return err
					}
				}
				return nil
			})
			return err
		})
	})
}

// A partition that is refused, or whose node is lost, is asked again by itself; the others' answers
// are kept.
func TestSomePartitionsFailTogether(t *testing.T) {
	for name, f := range map[string]fakeserver.Fault{
		"another leader": {Code: kvpb.ErrorCode_NOT_LEADER},
		"another epoch":  {Code: kvpb.ErrorCode_STALE_EPOCH},
		"overloaded":     {Code: kvpb.ErrorCode_OVERLOADED},
		"no quorum":      {Code: kvpb.ErrorCode_NO_QUORUM},
		"unhealthy":      {Code: kvpb.ErrorCode_NODE_UNHEALTHY},
		"unknown":        {Unknown: true},
		"lost before":    {BreakBefore: true},
		"lost after":     {BreakAfter: true},
	} {
		inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
			ctx := t.Context()
			c.AddKeyspace("hash", 24)
			client := c.open()
			defer client.Close()
			ks := client.Keyspace("hash")
			all := spread(t, ks, 100)
			var asked map[uint64]int
			fail := func(kind string) {
				asked = make(map[uint64]int)
				c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
					if fakeserver.KindOf(r) != kind {
						return fakeserver.Fault{}
					}
					if asked[r.Partition]++; asked[r.Partition] == 1 && r.Partition%8 == 3 {
						return f
					}
					return fakeserver.Fault{}
				})
			}
			once := func(kind string) {
				t.Helper()
				failed := 0
				for p, n := range asked {
					if p%8 == 3 {
						failed++
						if n < 2 {
							t.Errorf("%s: partition %d failed and was not asked again", name, p)
						}
					} else if n > 1 && f.Code != 0 {
						t.Errorf("%s: partition %d got %d times a %s", name, p, n, kind)
					}
				}
				if failed != 3 || len(asked) != 24 {
					t.Errorf("%s: %d of %d partitions failed", name, failed, len(asked))
				}
			}
			fail("batchget")
			if _, err := viewAll(ctx, client, ks, all, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			once("batchget")
			fail("prepare")
			want := make(map[string]string)
			if _, err := client.Update(ctx, func(tx *Txn) error {
				for _, key := range all {
					want[string(key)] = "new"
					if err := tx.Put(ks, key, []byte("new")); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			once("prepare")
			c.Play(nil)
			if _, err := viewAll(ctx, client, ks, all, want); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// Leaders move to other nodes, unknown to the client.
func TestLeadersMoveTogether(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 24)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		all := spread(t, ks, 100)
		for round := range uint64(5) {
			for _, p := range c.Led(1 + round%3) {
				if p.Desc.Id%4 != round%4 {
					c.Lead(p, p.Next(), false)
				}
			}
			if _, err := viewAll(ctx, client, ks, all, nil); err != nil {
				t.Error(err)
			}
		}
	})
}

// A partition that does not answer holds up neither the answers of the others nor their next
// attempts; and the call ends with its context.
func TestOneSlowPartitionHoldsNobodyUp(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		c.AddKeyspace("hash", 24)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		all := spread(t, ks, 100)
		began := time.Now()
		var slow, refused uint64
		var again time.Duration
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			switch {
			case fakeserver.KindOf(r) != "batchget":
			case slow == 0:
				slow = r.Partition
			case refused == 0:
				refused = r.Partition
				return fakeserver.Fault{Code: kvpb.ErrorCode_OVERLOADED}
			case r.Partition == refused && again == 0:
				again = time.Since(began)
			}
			return fakeserver.Fault{Swallow: slow != 0 && r.Partition == slow}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := viewAll(ctx, client, ks, all, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if again == 0 || again > time.Second {
			t.Errorf("the refused partition was asked again after %s", again)
		}
		c.Play(nil)
		if _, err := viewAll(t.Context(), client, ks, all, nil); err != nil {
			t.Error(err)
		}
	})
}

// The first read of a View, over several partitions, one of which has a version that may have been
// acknowledged before: all are read anew, as of that version.
func TestUncertainPartitionMovesAllTogether(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("hash", 24)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		all := spread(t, ks, 100)
		ahead := client.Timestamp().Add(200 * time.Millisecond)
		p := c.PartitionOf(id, "k007")
		c.Set(func() {
			p.Data.Versions["k007"] = append(p.Data.Versions["k007"],
				fakeserver.Version{At: ahead, Value: "2"})
			p.Low = ahead.Add(time.Second)
		})
		at, err := viewAll(t.Context(), client, ks, all, map[string]string{"k007": "2"})
		if err != nil || at != ahead {
			t.Error(at, ahead, err)
		}
	})
}

// Reads of few keys of one node's partitions are one request, and those of many are not; a node
// that does not know such requests is asked for each partition.
func TestSmallReadsShareARequest(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 24)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("hash")
		all := spread(t, ks, 300)
		deleted := map[string]string{}
		for _, key := range all[:20:20] {
			must[bool](t)(ks.Delete(ctx, key))
			deleted[string(key)] = ""
		}
		all = append(all, all[7], all[25]) // twice, without a value and with one
		for _, x := range []struct {
			keys, want int
			old        bool
		}{{40, 3, false}, {len(all), 0, false}, {40, 0, true}} {
			var before, after int
			c.Set(func() { before, c.NoMerges = c.Shared, x.old })
			if _, err := viewAll(ctx, client, ks, all[len(all)-x.keys:], deleted); err != nil {
				t.Error(err)
			}
			if _, err := viewAll(ctx, client, ks, all[:x.keys], deleted); err != nil {
				t.Error(err)
			}
			c.Set(func() { after = c.Shared })
			if after-before != 2*x.want {
				t.Errorf("%d keys: %d shared requests, want %d", x.keys, after-before, 2*x.want)
			}
		}
	})
}

package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A write of several keys of one partition that splits between two attempts happens once, as a
// whole and at one timestamp, whether or not the first attempt was executed.
func TestAWriteWhosePartitionSplitsHappensOnce(t *testing.T) {
	type writer func(ctx context.Context, ks *Keyspace) (Timestamp, error)
	both := func(ctx context.Context, ks *Keyspace, read bool) (Timestamp, error) {
		return ks.client.Update(ctx, func(tx *Txn) error {
			if read {
				if _, err := tx.GetForUpdate(ctx, ks, []byte("a")); err != nil &&
					!errors.Is(err, ErrNotFound) {
					return err
				}
			}
			return errors.Join(tx.Put(ks, []byte("a"), []byte("1")), tx.Delete(ks, []byte("z")))
		})
	}
	for name, write := range map[string]writer{
		"writebatch": func(ctx context.Context, ks *Keyspace) (Timestamp, error) {
			return ks.Batch().Put([]byte("a"), []byte("1")).Delete([]byte("z")).Commit(ctx)
		},
		"prepare": func(ctx context.Context, ks *Keyspace) (Timestamp, error) {
			return both(ctx, ks, false)
		},
		"prepare under a lock": func(ctx context.Context, ks *Keyspace) (Timestamp, error) {
			return both(ctx, ks, true)
		},
	} {
		for fate, fault := range map[string]fakeserver.Fault{
			"refused": {Code: kvpb.ErrorCode_OVERLOADED}, "lost": {BreakBefore: true},
			"executed": {BreakAfter: true}, "said to be unknown": {Unknown: true},
		} {
			t.Run(name+" "+fate, func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
					id := c.AddKeyspace("k", 1)
					client := c.open()
					defer client.Close()
					ks := client.Keyspace("k")
					must[Timestamp](t)(ks.Put(t.Context(), []byte("z"), []byte("0")))
					attempts := 0
					c.Play(func(n *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
						if r.Term == 0 || r.GetWriteBatch() == nil && r.GetPrepare().GetOnePhase() == nil &&
							r.GetCompareAndSwap() == nil {
							return fakeserver.Fault{}
						}
						switch attempts++; attempts {
						case 1:
							return fault
						case 2:
							c.SplitLocked(c.PartitionsOf(id)[0], "m", false)
						}
						return fakeserver.Fault{}
					})
					at := must[Timestamp](t)(write(t.Context(), ks))
					if c.Set(func() { attempts += len(c.PartitionsOf(id)) }); attempts < 4 {
						t.Fatalf("%d attempts and partitions", attempts)
					}
					if p := must[Pair](t)(ks.Get(t.Context(), []byte("a"))); p.Version != at {
						t.Errorf("a is of %s, want %s", p.Version, at)
					}
					if _, err := ks.Get(t.Context(), []byte("z")); !errors.Is(err, ErrNotFound) {
						t.Errorf("z: %v", err)
					}
					if a, z := c.Writes(id, "a"), c.Writes(id, "z"); a != 1 || z != 2 {
						t.Errorf("a was written %d times, z %d times", a, z)
					}
				})
			})
		}
	}
}

// A scan, forwards and backwards, and a count go on while partitions split and merge with every
// request, and the client hears of it only by refusals, of which each says little: no row comes
// twice or is missed. In a hash keyspace too, where several partitions have one number.
func TestReadsWhilePartitionsChangeAllTheTime(t *testing.T) {
	eachLayout(t, func(t *testing.T, c *fakeCluster, ks *Keyspace, id uint32) {
		want := fill(t, ks, 600)
		rest := 0
		c.Set(func() {
			c.PageRows = 20
			c.Brings = func(of *clusterpb.Partition,
				all []*clusterpb.Partition) []*clusterpb.Partition {
				rest++
				return slices.DeleteFunc(slices.Clone(all), func(d *clusterpb.Partition) bool {
					return d.Id != of.Id && (d.Id+uint64(rest))%3 > 0
				})
			}
		})
		c.Play(func(n *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			all := c.PartitionsOf(id)
			p := all[c.Random.IntN(len(all))]
			if told := c.Random.IntN(8) == 0; c.Random.IntN(len(all)) > 20 {
				c.MergeLocked(p, told)
			} else {
				c.SplitLocked(p, want[c.Random.IntN(len(want))], told)
			}
			return fakeserver.Fault{}
		})
		for round := range 3 {
			got := must[[]Pair](t)(drain(ks.Scan(t.Context())))
			if !slices.Equal(keysOf(got), want) {
				t.Fatalf("round %d: %d rows, want %d", round, len(got), len(want))
			}
			backwards := keysOf(must[[]Pair](t)(drain(ks.Scan(t.Context(), Reverse()))))
			if slices.Reverse(backwards); !slices.Equal(backwards, want) {
				t.Fatalf("round %d: %d rows backwards, want %d", round, len(backwards), len(want))
			}
			some := keysOf(must[[]Pair](t)(drain(ks.Scan(t.Context(), From([]byte("key00100")),
				To([]byte("key00500")), Limit(250)))))
			if !slices.Equal(some, want[100:350]) {
				t.Fatalf("round %d: %d rows of some", round, len(some))
			}
			if n := must[uint64](t)(ks.Count(t.Context())); n != 600 {
				t.Fatalf("round %d: counted %d", round, n)
			}
			var all [][]byte
			for _, key := range want {
				all = append(all, []byte(key))
			}
			if got := must[[]Pair](t)(ks.BatchGet(t.Context(), all)); slices.ContainsFunc(got,
				func(p Pair) bool { return !p.Exists() }) || !slices.Equal(keysOf(got), want) {
				t.Fatalf("round %d: a batch of keys does not bring all", round)
			}
		}
		if n := must[uint64](t)(ks.DeleteRange(t.Context(), All())); n != 600 {
			t.Fatalf("deleted %d", n)
		}
	})
}

// A hash keyspace whose numbers have several partitions is read by as many requests as it takes: a
// short scan does not ask those that it does not get to.
func TestAShortScanLeavesTheRestOfAHashNumberAlone(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		id := c.AddKeyspace("k", 4)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("k")
		want := fill(t, ks, 400)
		c.Change(func() {
			for _, p := range c.PartitionsOf(id) {
				for cut := 380; cut > 20; cut -= 20 {
					c.SplitLocked(p, fmt.Sprintf("key%05d", cut), false)
				}
			}
		})
		must[uint64](t)(ks.Count(t.Context())) // so that all is known
		asked := map[uint64]bool{}
		c.Play(func(n *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if r.GetScan().GetAt() != nil {
				asked[r.Partition] = true
			}
			return fakeserver.Fault{}
		})
		for _, reverse := range []bool{false, true} {
			clear(asked)
			first := slices.Clone(want)
			options := []ScanOption{Limit(10), From([]byte("key00050")), To([]byte("key00350"))}
			first = first[50:350]
			if reverse {
				options = append(options, Reverse())
				slices.Reverse(first)
			}
			got := keysOf(must[[]Pair](t)(drain(ks.Scan(t.Context(), options...))))
			if !slices.Equal(got, first[:10]) {
				t.Fatalf("reverse %t: %q", reverse, got)
			}
			if len(asked) > 8 {
				t.Errorf("reverse %t: %d partitions were asked for 10 rows", reverse, len(asked))
			}
		}
	})
}

package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// The loop of a scan moves the moment while it has a pair in hand that the transaction itself has
// written. What follows is of the new moment: what others have written behind it meanwhile is seen,
// and what was written before it is a conflict.
func TestScanGoesOnAtTheNewMoment(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		for _, c := range []struct {
			name           string
			own            map[string]string // an empty value is a delete
			committed      []string
			moveAt         string
			phantom        string
			want, backward []string
		}{
			{"behind the last row", map[string]string{"d": "own"}, []string{"b"}, "d", "f",
				[]string{"b=1", "d=own", "f=2"}, nil},
			{"before the first row", map[string]string{"d": "own"}, []string{"f"}, "d", "b", nil,
				[]string{"f=1", "d=own", "b=2"}},
			{"between own writes", map[string]string{"c": "own", "d": "own"}, []string{"f"}, "c",
				"c5", []string{"c=own", "c5=2", "d=own", "f=1"}, nil},
			{"between own writes, backward", map[string]string{"c": "own", "d": "own"},
				[]string{"b"}, "d", "c5", nil, []string{"d=own", "c5=2", "c=own", "b=1"}},
			{"under an own write", map[string]string{"c": "own", "d": "own"}, []string{"f"}, "c",
				"d", []string{"c=own", "d=own", "f=1"}, nil},
			{"before a row that is deleted", map[string]string{"c": "own", "d": ""}, []string{"d"},
				"c", "c5", []string{"c=own", "c5=2"}, nil},
			{"before a row that is overwritten", map[string]string{"c": "own", "d": "own"},
				[]string{"d"}, "c", "c5", []string{"c=own", "c5=2", "d=own"}, nil},
			{"at a row that is overwritten", map[string]string{"d": "own"}, []string{"d", "f"}, "d",
				"e", []string{"d=own", "e=2", "f=1"}, nil},
		} {
			want := c.want
			if reverse {
				want = c.backward
			}
			if want == nil {
				continue
			}
			t.Run(fmt.Sprintf("%s, reverse %t", c.name, reverse), func(t *testing.T) {
				inBubble(t, 3, func(t *testing.T, cluster *fakeCluster) {
					ctx := t.Context()
					cluster.AddKeyspace("k", 0)
					elsewhere := cluster.AddKeyspace("other", 0)
					client, second := cluster.open(), cluster.open()
					defer client.Close()
					defer second.Close()
					ks, other := client.Keyspace("k"), client.Keyspace("other")
					for _, key := range c.committed {
						must[Timestamp](t)(ks.Put(ctx, []byte(key), []byte("1")))
					}
					must[Timestamp](t)(other.Put(ctx, []byte("x"), []byte("1")))
					time.Sleep(2 * time.Second) // virtual time; whatever is uncertain is from now on
					tx := must[*Txn](t)(client.Begin(ctx))
					defer tx.Rollback()
					for key, value := range c.own {
						err := tx.Put(ks, []byte(key), []byte(value))
						if value == "" {
							err = tx.Delete(ks, []byte(key))
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					var got []string
					options := []ScanOption{}
					if reverse {
						options = append(options, Reverse())
					}
					for p, err := range tx.Scan(ctx, ks, options...) {
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, string(p.Key)+"="+string(p.Value))
						if string(p.Key) != c.moveAt {
							continue
						}
						time.Sleep(time.Millisecond)
						must[Timestamp](t)(second.Keyspace("k").Put(ctx, []byte(c.phantom), []byte("2")))
						must[Timestamp](t)(second.Keyspace("other").Put(ctx, []byte("x"), []byte("2")))
						moved := cluster.PartitionOf(elsewhere, "x")
						cluster.Set(func() { moved.Low = moved.Highest.Add(time.Second) })
						before := tx.Timestamp()
						if p, err := tx.Get(ctx, other, []byte("x")); err != nil ||
							string(p.Value) != "2" || tx.Timestamp() == before {
							t.Fatalf("%s at %s: %v; the moment has not moved", p.Value, tx.Timestamp(), err)
						}
					}
					if !slices.Equal(got, want) {
						t.Errorf("scanned %v, want %v", got, want)
					}
					if _, err := tx.Commit(ctx); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// A row that an own delete hides was read: if something before it is written, and the moment moves
// over that, it is a conflict.
func TestScanHasReadWhatOwnDeletesHide(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		id := c.AddKeyspace("range", 0, "m")
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("range")
		must[Timestamp](t)(ks.Put(ctx, []byte("b"), []byte("1")))
		must[Timestamp](t)(ks.Put(ctx, []byte("n"), []byte("1")))
		time.Sleep(2 * time.Second) // virtual time
		first, second := c.PartitionOf(id, "a"), c.PartitionOf(id, "n")
		tx := must[*Txn](t)(client.Begin(ctx))
		defer tx.Rollback()
		if err := tx.Delete(ks, []byte("b")); err != nil {
			t.Fatal(err)
		}
		once := false
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			q := r.GetScan()
			if q == nil || once || c.Partitions[r.Partition] != second {
				return fakeserver.Fault{}
			}
			once = true
			at := wire.FromTimestamp(q.At)
			write := func(p *fakeserver.Partition, key string, at Timestamp) {
				p.Data.Versions[key] = append(p.Data.Versions[key], fakeserver.Version{At: at, Value: "2"})
				p.Highest = hlc.Max(p.Highest, at)
			}
			write(first, "a5", at.Add(10*time.Millisecond))
			write(second, "n", at.Add(20*time.Millisecond))
			second.Low = at.Add(time.Second)
			return fakeserver.Fault{}
		})
		var got []string
		var failed error
		for p, err := range tx.Scan(ctx, ks) {
			if failed = err; err == nil {
				got = append(got, string(p.Key)+"="+string(p.Value))
			}
		}
		if !once || !errors.Is(failed, ErrConflict) {
			t.Errorf("the scan has %v, and ended with: %v", got, failed)
		}
	})
}

// A function that finds that a scan has failed may read on: nothing was read yet.
func TestReadInTheLoopOfAScanThatFailed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("k", 0)
		client := c.open()
		defer client.Close()
		ks := client.Keyspace("k")
		must[Timestamp](t)(ks.Put(ctx, []byte("b"), []byte("1")))
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			return fakeserver.Fault{Swallow: r.GetScan() != nil}
		})
		err := client.View(ctx, func(s *Snapshot) error {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			failed := 0
			for _, err := range s.Scan(short, ks) {
				if failed++; !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if p, err := s.Get(ctx, ks, []byte("b")); err != nil || string(p.Value) != "1" {
					t.Errorf("%q: %v", p.Value, err)
				}
			}
			if failed != 1 {
				t.Errorf("the scan failed %d times", failed)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

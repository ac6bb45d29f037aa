package kv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
)

// What a read says of its age, and what is asked of it, holds for the clock on the wall, however
// far the servers' clocks are apart within their bound: a write is seen if it was acknowledged
// longer ago.
func TestClaimedStalenessIsNeverTooSmall(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		id := c.AddKeyspace("one", 1)
		random := rand.New(rand.NewPCG(1, 2))
		const bound = int64(fakeserver.MaxOffset)
		old := 0
		for round := range 8 {
			leader := uint64(round%3 + 1)
			slow := leader%3 + 1
			c.Change(func() {
				for id, n := range c.Nodes {
					n.Skew.Store(random.Int64N(bound) - bound/2)
					n.Lag = time.Duration(random.Int64N(int64(3 * time.Second)))
					n.Region, n.Zone = "eu", fmt.Sprint(id)
				}
				c.Nodes[leader].Skew.Store(bound / 2) // its writes are ahead
				c.Nodes[slow].Skew.Store(-bound / 2)
			})
			c.Lead(c.PartitionOf(id, "k"), leader, true)
			writer := c.open()
			// The reader hears of the slow clock mostly, but for when it needs the leader.
			reader := c.open(Locality("eu", fmt.Sprint(slow)))
			ks := reader.Keyspace("one")
			var acknowledged []time.Time
			write := func(d time.Duration) {
				for stop := time.Now().Add(d); time.Now().Before(stop); pass(20 * time.Millisecond) {
					must[Timestamp](t)(writer.Keyspace("one").Put(ctx, []byte("k"),
						fmt.Append(nil, len(acknowledged))))
					acknowledged = append(acknowledged, time.Now())
				}
			}
			write(6 * time.Second)
			for _, d := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second,
				4 * time.Second} {
				for range 3 { // it samples the clock
					if _, err := ks.Get(ctx, []byte("k"), AnyStaleness()); err != nil &&
						!errors.Is(err, ErrNotFound) {
						t.Fatal(err)
					}
					write(1200 * time.Millisecond)
				}
				option := AnyStaleness()
				if d > 0 {
					option = MaxStaleness(d)
				}
				var info ReadInfo
				called := time.Now()
				p, err := ks.Get(ctx, []byte("k"), option, ReadAt(&info))
				seen := -1
				if err == nil {
					fmt.Sscan(string(p.Value), &seen)
				} else if !errors.Is(err, ErrNotFound) {
					t.Fatal(err)
				}
				if missed := seen + 1; missed < len(acknowledged) {
					old++
					if ago := called.Sub(acknowledged[missed]); d > 0 && ago > d {
						t.Fatalf("with a bound of %s a write of %s before was not seen", d, ago)
					}
					if ago := time.Since(acknowledged[missed]); info.Age >= 0 && ago > info.Age {
						t.Fatalf("what was read was said to be %s old, and lacks a write of %s before",
							info.Age, ago)
					}
				}
			}
			writer.Close()
			reader.Close()
			pass(10 * time.Second) // all of that is closed, whichever node leads next
		}
		if old < 16 {
			t.Errorf("only %d reads were old", old)
		}
	})
}

// A session sees what it wrote and read, in whichever way, and never goes back.
func TestSessionsReadTheirWrites(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 3)
		c.AddKeyspace("range", 0, "k3", "k6")
		client, other := c.open(), c.open()
		defer client.Close()
		defer other.Close()
		random := rand.New(rand.NewPCG(3, 4))
		for i := range 400 {
			name := []string{"hash", "range"}[random.IntN(2)]
			ks, theirs := client.Keyspace(name), other.Keyspace(name)
			key, value := fmt.Appendf(nil, "k%d", random.IntN(10)), fmt.Appendf(nil, "v%d", i)
			c.Set(func() {
				for _, n := range c.Nodes {
					n.Lag = time.Duration(random.Int64N(int64(300 * time.Millisecond)))
				}
			})
			what := ""
			switch random.IntN(7) {
			case 0:
				what = "put"
				must[Timestamp](t)(ks.Put(ctx, key, value))
			case 1:
				what = "delete"
				if _, err := ks.Delete(ctx, key); err != nil {
					t.Fatal(err)
				}
				value = nil
			case 2:
				what = "transaction"
				must[Timestamp](t)(client.Update(ctx, func(tx *Txn) error {
					return tx.Put(ks, key, value)
				}))
			case 3:
				what = "batch"
				must[Timestamp](t)(ks.Batch().Put(key, value).Commit(ctx))
			case 4:
				what = "another client's, observed"
				client.Observe(must[Timestamp](t)(theirs.Put(ctx, key, value)))
			case 5:
				what = "another client's, seen"
				must[Timestamp](t)(theirs.Put(ctx, key, value))
				must[Pair](t)(ks.Get(ctx, key))
			case 6:
				what = "another client's deletion, seen"
				if _, err := theirs.Delete(ctx, key); err != nil {
					t.Fatal(err)
				}
				if n, err := ks.Count(ctx, Prefix(key)); err != nil || n != 0 {
					t.Fatal(n, err)
				}
				value = nil
			}
			pass(time.Duration(random.Int64N(int64(1500 * time.Millisecond))))
			p, err := ks.Get(ctx, key, ReadYourWrites())
			if err != nil && !errors.Is(err, ErrNotFound) || string(p.Value) != string(value) {
				t.Fatalf("%d: after a write by %s of %q: %q, %v", i, what, value, p.Value, err)
			}
			if random.IntN(3) == 0 {
				pairs, err := ks.BatchGet(ctx, [][]byte{key, []byte("k0"), []byte("k9")}, ReadYourWrites())
				if err != nil || string(pairs[0].Value) != string(value) {
					t.Fatalf("%d: after a write by %s of %q: %q, %v", i, what, value, pairs[0].Value, err)
				}
				all, err := drain(ks.Scan(ctx, ReadYourWrites()))
				at := slices.IndexFunc(all, func(p Pair) bool { return string(p.Key) == string(key) })
				if err != nil || (at >= 0) != (value != nil) ||
					at >= 0 && string(all[at].Value) != string(value) {
					t.Fatalf("%d: after a write by %s of %q: %v, %v", i, what, value, all, err)
				}
			}
		}
	})
}

// What is written together is seen together, in all partitions, while it is written.
func TestReplicasReadOneMoment(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 5)
		c.AddKeyspace("range", 0, "k3", "k6")
		c.PageRows = 2
		client, writer := c.open(), c.open()
		defer client.Close()
		defer writer.Close()
		all := make([][]byte, 8)
		for i := range all {
			all[i] = fmt.Appendf(nil, "k%d", i)
		}
		random := rand.New(rand.NewPCG(5, 6))
		write := func(i int) {
			must[Timestamp](t)(writer.Update(ctx, func(tx *Txn) error {
				for _, name := range []string{"hash", "range"} {
					for _, key := range all {
						if err := tx.Put(writer.Keyspace(name), key, fmt.Append(nil, i)); err != nil {
							return err
						}
					}
				}
				return nil
			}))
		}
		write(0)
		pass(5 * time.Second)
		seen := make(map[string]bool)
		for i := range 150 {
			c.Set(func() {
				for _, n := range c.Nodes {
					n.Lag = time.Duration(random.Int64N(int64(400 * time.Millisecond)))
				}
			})
			write(i + 1)
			pass(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
			ks := client.Keyspace([]string{"hash", "range"}[i%2])
			for kind, option := range freshOptions() {
				var values []string
				add := func(p Pair) { values = append(values, string(p.Value)) }
				pairs := must[[]Pair](t)(ks.BatchGet(ctx, all, option))
				for _, p := range pairs {
					add(p)
				}
				check := func(what string) {
					t.Helper()
					if len(values) != len(all) || slices.Min(values) != slices.Max(values) {
						t.Fatalf("%s, %s: %v", kind, what, values)
					}
					seen[values[0]] = true
					values = nil
				}
				check("batch get")
				for p, err := range ks.Scan(ctx, option) {
					if err != nil {
						t.Fatal(err)
					}
					add(p)
				}
				check("scan")
				if err := client.View(ctx, func(s *Snapshot) error {
					for _, key := range all {
						p, err := s.Get(ctx, ks, key)
						if err != nil {
							return err
						}
						add(p)
						pass(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
					}
					return nil
				}, option); err != nil {
					t.Fatal(err)
				}
				check("view")
			}
		}
		if len(seen) < 30 {
			t.Errorf("only %d states were seen", len(seen))
		}
	})
}

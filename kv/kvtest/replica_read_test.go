package kvtest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// zoned is a cluster whose servers are each in a zone of their own: "0", "1" and "2".
func zoned(t *testing.T) *kvtest.Cluster {
	t.Helper()
	return kvtest.Start(t, kvtest.Options{Latency: latency,
		Configure: func(server int, c *embedded.ServerConfig) {
			c.Region, c.Zone = "eu", fmt.Sprint(server)
		}})
}

// Against real servers, reads that any replica may answer are of one moment, as new as they are to
// be, and the same as what leaders read there.
func TestReplicaReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		c := zoned(t)
		writer, client := c.Client(t), c.Client(t, kv.Locality("eu", "1"))
		for name, layout := range map[string]kv.KeyspaceOption{"hash": kv.Hash(4),
			"range": kv.Range([]byte("k3"), []byte("k6"))} {
			theirs := create(t, writer, name, layout)
			ks := client.Keyspace(name)
			all := make([][]byte, 9)
			for i := range all {
				all[i] = fmt.Appendf(nil, "k%d", i)
			}
			for round := range 15 {
				at, err := writer.Update(ctx, func(tx *kv.Txn) error {
					for _, key := range all {
						if err := tx.Put(theirs, key, fmt.Append(nil, round)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				acknowledged := time.Now()
				time.Sleep(time.Duration(round) * 300 * time.Millisecond) // virtual
				if round%3 == 0 {
					client.Observe(at)
				}
				for kind, option := range map[string]kv.FreshnessOption{"nearest": kv.Nearest(),
					"own": kv.ReadYourWrites(), "any": kv.AnyStaleness(),
					"bounded": kv.MaxStaleness(2500 * time.Millisecond)} {
					var info kv.ReadInfo
					pairs, err := ks.BatchGet(ctx, all, option, kv.ReadAt(&info))
					if err != nil {
						t.Fatal(name, kind, err)
					}
					first := string(pairs[0].Value)
					for _, p := range pairs {
						if string(p.Value) != first {
							t.Fatalf("%s, %s: %q beside %q", name, kind, p.Value, first)
						}
					}
					latest := first == fmt.Sprint(round)
					if ago := time.Since(acknowledged); !latest &&
						(kind == "own" && round%3 == 0 || kind == "bounded" && ago > 2500*time.Millisecond ||
							info.Age >= 0 && info.Age < ago) {
						t.Fatalf("%s, %s: %q, %s after %d; it says %+v", name, kind, first, ago, round, info)
					}
					again, err := ks.BatchGet(ctx, all, kv.At(info.At))
					if err != nil {
						t.Fatal(err)
					}
					for i, p := range again {
						if p.Version != pairs[i].Version {
							t.Fatalf("%s, %s: a leader reads %q at %s, and not %q",
								name, kind, p.Value, info.At, first)
						}
					}
					rows := 0
					for p, err := range ks.Scan(ctx, kv.At(info.At), kv.Nearest()) {
						if err != nil || p.Version != pairs[rows].Version {
							t.Fatalf("%s, %s: replicas read %v, %v at %s, and not %q",
								name, kind, p, err, info.At, first)
						}
						rows++
					}
					if rows != 0 && rows != 9 {
						t.Fatalf("%s, %s: replicas read %d rows", name, kind, rows)
					}
					// It may read an earlier moment.
					if n, err := ks.Count(ctx, option); err != nil || n != 9 && (n != 0 || kind == "own") {
						t.Fatal(name, kind, n, err)
					}
				}
			}
		}
	})
}

// Against real servers, a linearisable read by a replica that does not lead sees what was
// acknowledged just before, whichever server leads and however often, and that replica has
// answered.
func TestLinearizableFollowerReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		c := zoned(t)
		writer := c.Client(t)
		clients := []*kv.Client{c.Client(t, kv.Locality("eu", "0")),
			c.Client(t, kv.Locality("eu", "1")), c.Client(t, kv.Locality("eu", "2"))}
		for name, layout := range map[string]kv.KeyspaceOption{"hash": kv.Hash(4),
			"range": kv.Range([]byte("k3"), []byte("k6"))} {
			theirs := create(t, writer, name, layout)
			all := make([][]byte, 9)
			for i := range all {
				all[i] = fmt.Appendf(nil, "k%d", i)
			}
			answered := make(map[uint64]int)
			for round := range 20 {
				want := fmt.Sprint(round)
				_, err := writer.Update(ctx, func(tx *kv.Txn) error {
					for _, key := range all {
						if err := tx.Put(theirs, key, []byte(want)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				check := func(what string, p kv.Pair, err error) {
					t.Helper()
					if err != nil || string(p.Value) != want {
						t.Fatalf("%s, %s: %s is %q, want %q: %v", name, what, p.Key, p.Value, want, err)
					}
				}
				for _, client := range clients {
					ks, option := client.Keyspace(name), kv.LinearizableFollower()
					var info kv.ReadInfo
					p, err := ks.Get(ctx, all[round%9], option, kv.ReadAt(&info))
					check("get", p, err)
					answered[info.Node]++
					pairs, err := ks.BatchGet(ctx, all, option)
					if err != nil {
						t.Fatal(err)
					}
					for _, p := range pairs {
						check("batch get", p, nil)
					}
					rows := 0
					for p, err := range ks.Scan(ctx, option) {
						check("scan", p, err)
						rows++
					}
					if n, err := ks.Count(ctx, option); err != nil || n != 9 || rows != 9 {
						t.Fatalf("counted %d, %v; scanned %d", n, err, rows)
					}
					if err := client.View(ctx, func(s *kv.Snapshot) error {
						p, err := s.Get(ctx, ks, all[0])
						check("view", p, err)
						for p, err := range s.Scan(ctx, ks) {
							check("scan of a view", p, err)
						}
						return nil
					}, option); err != nil {
						t.Fatal(err)
					}
				}
			}
			// Each client is answered by the server in its zone, but for what is locked or behind.
			for id, n := range answered {
				if n < 15 {
					t.Errorf("%s: server %d has answered %d of 20 reads of its zone: %v",
						name, id, n, answered)
				}
			}
			if len(answered) != 3 {
				t.Errorf("%s: %v", name, answered)
			}
		}
	})
}

// A server that is cut off from the others answers what may be of any age, and says how old it is.
func TestCutOffReplicaAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx := t.Context()
		c := zoned(t)
		ks := create(t, c.Client(t), "things", kv.Hash(1))
		put(t, ks, "k", "old")
		time.Sleep(5 * time.Second) // virtual
		near := c.Client(t, kv.Locality("eu", "2"))
		if _, err := near.Keyspace("things").Get(ctx, []byte("k"), kv.AnyStaleness()); err != nil {
			t.Fatal(err)
		}
		for _, server := range []int{0, 1} {
			c.Network().CutBoth(c.Host(2), c.Host(server), memnet.Stall)
			c.Network().CutBoth("client-2", c.Host(server), memnet.Stall)
		}
		time.Sleep(30 * time.Second) // virtual
		var info kv.ReadInfo
		p, err := near.Keyspace("things").Get(ctx, []byte("k"), kv.AnyStaleness(), kv.ReadAt(&info))
		if err != nil || string(p.Value) != "old" {
			t.Fatal(p, err)
		}
		if info.Age >= 0 && info.Age < 25*time.Second {
			t.Errorf("%+v", info)
		}
		if _, err := near.Keyspace("things").Get(ctx, []byte("k"), kv.Nearest()); !errors.Is(err,
			kv.ErrNoQuorum) {
			t.Error("what is that old is not near:", err)
		}
	})
}

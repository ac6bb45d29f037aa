package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// mustSayNoQuorum checks that an error is about a quorum, and says which servers do not answer.
func mustSayNoQuorum(t *testing.T, what string, err error, silent ...string) {
	t.Helper()
	if !errors.Is(err, kv.ErrNoQuorum) {
		t.Errorf("%s: %v; want ErrNoQuorum", what, err)
		return
	}
	for _, want := range silent {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want it to name %s", what, err, want)
		}
	}
}

// TestCoreWithoutQuorumSaysSo: every call that needs the core ends in ErrNoQuorum and names the
// members that do not answer, however the majority was lost and however short the caller's time is.
func TestCoreWithoutQuorumSaysSo(t *testing.T) {
	for _, separate := range []bool{false, true} {
		for _, mode := range []memnet.Mode{memnet.Break, memnet.Stall, 0} {
			name := map[memnet.Mode]string{memnet.Break: "cut off", memnet.Stall: "silent",
				0: "stopped"}[mode]
			if separate {
				name += ", core on servers of its own"
			}
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: separate,
						Latency: latency})
					client := c.Client(t)
					create(t, client, "here", kv.Hash(2), kv.Replicas(1))
					for i := range 2 {
						if mode != 0 {
							c.Isolate(i, mode)
						} else if err := c.Stop(i); err != nil {
							t.Fatal(err)
						}
					}
					lost := []string{c.Endpoints()[0], c.Endpoints()[1]}
					time.Sleep(5 * time.Second) // the member that is left notices
					for _, limit := range []time.Duration{500 * time.Millisecond, 2 * time.Second,
						11 * time.Second} {
						within := func(what string, call func(context.Context) error) {
							t.Helper()
							ctx, cancel := context.WithTimeout(t.Context(), limit)
							defer cancel()
							mustSayNoQuorum(t, what+" within "+limit.String(), call(ctx), lost...)
						}
						within("list keyspaces",
							func(ctx context.Context) error {
								_, err := admin.New(client).Keyspaces(ctx)
								return err
							})
						within("create", func(
							ctx context.Context) error {
							_, err := client.CreateKeyspace(ctx,
								"more", kv.Hash(1))
							return err
						})
						within("drop", func(ctx context.Context) error {
							return client.DropKeyspace(ctx, "here")
						})
						within("list nodes", func(
							ctx context.Context) error {
							_, err := admin.New(client).Nodes(ctx)
							return err
						})
						within("list partitions",
							func(ctx context.Context) error {
								_, err := admin.New(client).Partitions(ctx, "here")
								return err
							})
						within("get of an unknown keyspace", func(ctx context.Context) error {
							_, err := client.Keyspace("unheard").Get(ctx, []byte("k"))
							return err
						})
					}
				})
			})
		}
	}
}

// TestPartitionWithoutQuorumSaysSo: what is asked of a partition that has lost two of its three
// replicas ends in ErrNoQuorum, and names the nodes that do not answer; a write that may have been
// executed says that as well.
func TestPartitionWithoutQuorumSaysSo(t *testing.T) {
	for _, mode := range []memnet.Mode{memnet.Break, memnet.Stall, 0} {
		t.Run(map[memnet.Mode]string{memnet.Break: "cut off", memnet.Stall: "silent",
			0: "stopped"}[mode], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Nodes: 3, Separate: true, Latency: latency})
				ks := create(t, c.Client(t), "here", kv.Hash(1))
				put(t, ks, "a", "1")
				leader := leaderOf(t, c)
				var lost []string
				for i := 1; i < c.Servers(); i++ {
					if i == leader {
						continue
					}
					lost = append(lost, fmt.Sprintf("node n%d", c.Process(i).NodeID()))
					if mode != 0 {
						c.Isolate(i, mode)
					} else if err := c.Stop(i); err != nil {
						t.Fatal(err)
					}
				}
				within := func(limit time.Duration, call func(context.Context) error) error {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					return call(ctx)
				}
				putOne := func(ctx context.Context) error {
					_, err := ks.Put(ctx, []byte("a"), []byte("2"))
					return err
				}
				// The first goes to a leader that does not know yet.
				err := within(6*time.Second, putOne)
				mustSayNoQuorum(t, "the first put", err, append(lost, `"a"`, "partition p")...)
				if !errors.Is(err, kv.ErrOutcomeUnknown) {
					t.Errorf("the first put: %v; want ErrOutcomeUnknown as well", err)
				}
				for _, limit := range []time.Duration{300 * time.Millisecond, 3 * time.Second,
					11 * time.Second} {
					err := within(limit, putOne)
					mustSayNoQuorum(t, "put within "+limit.String(), err,
						append(lost, `"a"`, "partition p")...)
					if errors.Is(err, kv.ErrOutcomeUnknown) {
						t.Errorf("put: %v; no server can have executed it", err)
					}
					mustSayNoQuorum(t, "get within "+limit.String(),
						within(limit, func(ctx context.Context) error {
							_, err := ks.Get(ctx, []byte("a"))
							return err
						}), lost...)
					mustSayNoQuorum(t, "count within "+limit.String(),
						within(limit, func(ctx context.Context) error {
							_, err := ks.Count(ctx)
							return err
						}), lost...)
				}
			})
		})
	}
}

// damage makes the only partition's replica on a server that is down one that does not open.
func damage(t *testing.T, c *kvtest.Cluster, server int, partition uint64) {
	t.Helper()
	state, err := engine.OpenState(engine.Options{FS: c.Disk(server).Mem(),
		Dir: "/tidemark/node/state", CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b := state.NewBatch()
	if err := b.Set(keys.LocalKey(keys.PartitionID(partition), keys.SuffixApplied),
		[]byte("nonsense"), nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(state.Commit(b), b.Close(), state.Flush(), state.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedReplicas: with one damaged replica nothing is refused; with a second one, or a node
// down, the error names the damage, and at once if no waiting helps.
func TestDamagedReplicas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Separate: true, Latency: latency})
		client := c.Client(t)
		ks := create(t, client, "here", kv.Hash(1))
		put(t, ks, "a", "1")
		partition := c.Process(1).Replicas()[0].Partition
		hurt := func(server int) {
			t.Helper()
			if err := c.Stop(server); err != nil {
				t.Fatal(err)
			}
			damage(t, c, server, partition)
			start(t, c, server)
			time.Sleep(time.Second)
		}
		first := leaderOf(t, c)
		hurt(first)
		for i := range 20 {
			put(t, ks, fmt.Sprint(i), "1")
			mustHold(t, ks, fmt.Sprint(i), "1")
		}
		second := leaderOf(t, c)
		if err := c.Stop(second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := ks.Put(ctx, []byte("a"), []byte("2"))
		mustSayNoQuorum(t, "one damaged, one down", err, "damaged")
		if !errors.Is(err, kv.ErrCorruption) {
			t.Errorf("one damaged, one down: %v; want ErrCorruption", err)
		}
		damage(t, c, second, partition)
		start(t, c, second)
		eventually(t, "an answer that is final", func() bool {
			began := time.Now()
			_, err = ks.Put(t.Context(), []byte("a"), []byte("2"))
			mustSayNoQuorum(t, "two damaged", err, "damaged")
			return time.Since(began) < time.Second
		})
		if !errors.Is(err, kv.ErrCorruption) || errors.Is(err, kv.ErrOutcomeUnknown) {
			t.Errorf("two damaged: %v; want ErrCorruption, and that nothing was executed", err)
		}
	})
}

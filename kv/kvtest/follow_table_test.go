package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// noSmallTables starts a cluster whose clients are sent what they ask for only.
func noSmallTables(t *testing.T, nodes int) *kvtest.Cluster {
	return kvtest.Start(t, kvtest.Options{Nodes: nodes,
		Configure: func(_ int, c *embedded.ServerConfig) { c.SmallTable = -1 }})
}

// A client that is sent only the partitions of keyspaces that it uses finds those it has not used
// yet, those that others create and split points of all; it does not find what there is not.
func TestKeyspacesOnDemand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := noSmallTables(t, 3)
		ctx := t.Context()
		maker, user := c.Client(t), c.Client(t)
		for i := range 20 {
			if _, err := maker.CreateKeyspace(ctx, fmt.Sprint("k", i), kv.Hash(4),
				kv.Replicas(1)); err != nil {
				t.Fatal(err)
			}
		}
		splits := [][]byte{[]byte("g"), []byte("p")}
		if _, err := maker.CreateKeyspace(ctx, "range", kv.Range(splits...),
			kv.Replicas(1)); err != nil {
			t.Fatal(err)
		}
		use := func(name string) error {
			ks := user.Keyspace(name)
			if _, err := ks.Put(ctx, []byte("a"), []byte(name)); err != nil {
				return err
			}
			p, err := ks.Get(ctx, []byte("a"))
			if err == nil && string(p.Value) != name {
				err = fmt.Errorf("read %q", p.Value)
			}
			return err
		}
		began := time.Now()
		if _, err := user.Keyspace("nothing").Get(ctx, []byte("a")); !errors.Is(err,
			kv.ErrKeyspaceNotFound) {
			t.Errorf("a keyspace that is not there: %v", err)
		}
		for i := range 20 {
			if err := use(fmt.Sprint("k", i)); err != nil {
				t.Errorf("keyspace k%d: %v", i, err)
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the first uses took %s", took)
		}
		// The first use of one is a transaction over it and another one.
		if _, err := user.Update(ctx, func(tx *kv.Txn) error {
			if err := tx.Put(user.Keyspace("range"), []byte("x"), []byte("1")); err != nil {
				return err
			}
			return tx.Put(user.Keyspace("k7"), []byte("x"), []byte("1"))
		}); err != nil {
			t.Error(err)
		}
		// A third client has used none, and asks for split points, and counts.
		third := c.Client(t)
		info, err := admin.New(third).Keyspace(ctx, "range")
		if err != nil || len(info.SplitAt) != 2 {
			t.Errorf("split points %q, %v", info.SplitAt, err)
		}
		if n, err := third.Keyspace("k3").Count(ctx); err != nil || n != 1 {
			t.Errorf("counted %d, %v", n, err)
		}
		// Dropped, and made again by another client under the same name.
		if err := maker.DropKeyspace(ctx, "k3"); err != nil {
			t.Fatal(err)
		}
		var missing error
		for range 100 {
			if missing = use("k3"); missing != nil {
				break
			}
			time.Sleep(50 * time.Millisecond) // virtual
		}
		if !errors.Is(missing, kv.ErrKeyspaceNotFound) {
			t.Errorf("a keyspace that was dropped: %v", missing)
		}
		if _, err := maker.CreateKeyspace(ctx, "k3", kv.Hash(2), kv.Replicas(1)); err != nil {
			t.Fatal(err)
		}
		if err := use("k3"); err != nil {
			t.Errorf("a keyspace that was made again: %v", err)
		}
	})
}

// follower is a stream of the table, and what it has said.
type follower struct {
	stream     clusterpb.Cluster_FollowTableClient
	keyspaces  map[string]uint32
	followed   map[uint32]bool
	partitions map[uint64]uint32 // keyspace
	leaders    map[uint64]uint64
	all        bool
}

func follow(t *testing.T, c *kvtest.Cluster, ids ...uint32) *follower {
	connection, err := grpc.NewClient("passthrough:///"+c.Endpoints()[0],
		grpc.WithContextDialer(c.Dialer("client")),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	f := &follower{keyspaces: map[string]uint32{}, followed: map[uint32]bool{},
		partitions: map[uint64]uint32{}, leaders: map[uint64]uint64{}}
	if f.stream, err = clusterpb.NewClusterClient(connection).FollowTable(ctx); err != nil {
		t.Fatal(err)
	}
	f.want(t, ids...)
	return f
}

func (f *follower) want(t *testing.T, ids ...uint32) {
	t.Helper()
	if err := f.stream.Send(&clusterpb.FollowTableRequest{Keyspaces: ids}); err != nil {
		t.Fatal(err)
	}
}

// until reads until something holds.
func (f *follower) until(t *testing.T, what string, holds func(u *clusterpb.TableUpdate) bool) {
	t.Helper()
	for range 1000 {
		u, err := f.stream.Recv()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		f.all = f.all || u.FollowsAll
		for _, k := range u.Keyspaces {
			f.keyspaces[k.Name] = k.Id
		}
		for _, id := range u.Followed {
			f.followed[id] = true
		}
		for _, p := range u.Partitions {
			f.partitions[p.Id] = p.Keyspace
		}
		for _, id := range u.RemovedPartitions {
			if _, known := f.partitions[id]; !known {
				t.Errorf("told that partition %d is gone, of which nothing was said", id)
			}
			delete(f.partitions, id)
		}
		for _, l := range u.Leaders {
			if _, known := f.partitions[l.Partition]; !known {
				t.Errorf("told the leader of partition %d, of which nothing was said", l.Partition)
			}
			f.leaders[l.Partition] = l.Node
		}
		if holds(u) {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// in counts the partitions of a keyspace, and those with a leader.
func (f *follower) in(keyspace uint32) (partitions, led int) {
	for id, ks := range f.partitions {
		if ks == keyspace {
			partitions++
			if f.leaders[id] != 0 {
				led++
			}
		}
	}
	return partitions, led
}

// The stream tells of all keyspaces, of the partitions and leaders of those that were asked for,
// and of nothing else; also of changes.
func TestFollowTable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := noSmallTables(t, 1)
		ctx := t.Context()
		maker := c.Client(t)
		make := func(name string, partitions int) {
			if _, err := maker.CreateKeyspace(ctx, name, kv.Hash(partitions),
				kv.Replicas(1)); err != nil {
				t.Fatal(err)
			}
		}
		make("a", 5)
		make("b", 7)
		f := follow(t, c)
		f.until(t, "the table", func(u *clusterpb.TableUpdate) bool { return u.Complete })
		a, b := f.keyspaces["a"], f.keyspaces["b"]
		if a == 0 || b == 0 || len(f.partitions) > 0 || f.all {
			t.Fatalf("keyspaces %v, %d partitions", f.keyspaces, len(f.partitions))
		}
		f.want(t, b)
		f.until(t, "the partitions of b", func(*clusterpb.TableUpdate) bool { return f.followed[b] })
		if n, led := f.in(b); n != 7 || led != 7 || len(f.partitions) != 7 {
			t.Errorf("b has %d partitions, %d with a leader, of %d", n, led, len(f.partitions))
		}
		// A change elsewhere shows as a keyspace only.
		make("c", 3)
		f.until(t, "c", func(*clusterpb.TableUpdate) bool { return f.keyspaces["c"] != 0 })
		f.want(t, a, b, f.keyspaces["c"], 1<<31)
		f.until(t, "the partitions of a and c", func(*clusterpb.TableUpdate) bool {
			return f.followed[a] && f.followed[f.keyspaces["c"]]
		})
		if len(f.partitions) < 12 {
			t.Errorf("%d partitions", len(f.partitions))
		}
		// What was asked for at first is in the first part.
		g := follow(t, c, a)
		g.until(t, "the table", func(u *clusterpb.TableUpdate) bool { return u.Complete })
		if n, _ := g.in(a); n != 5 || len(g.partitions) != 5 || !g.followed[a] {
			t.Errorf("%d partitions, %d of a", len(g.partitions), n)
		}
		if err := maker.DropKeyspace(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		g.until(t, "a to be gone", func(u *clusterpb.TableUpdate) bool {
			return len(g.partitions) == 0
		})
		if err := f.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		f.until(t, "changes after the client's side has closed",
			func(u *clusterpb.TableUpdate) bool { n, _ := f.in(a); return n == 0 })
		make("d", 1)
		f.until(t, "d", func(*clusterpb.TableUpdate) bool { return f.keyspaces["d"] != 0 })
	})
}

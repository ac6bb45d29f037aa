package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// picture is what a receiver of updates knows.
type picture struct {
	mu         sync.Mutex
	nodes      map[uint64]*clusterpb.Node
	keyspaces  map[uint32]*clusterpb.Keyspace
	partitions map[uint64]*clusterpb.Partition
	revision   uint64
	complete   bool
	resets     int
	updates    int
}

func newPicture() *picture {
	p := &picture{}
	p.clear()
	return p
}

func (p *picture) clear() {
	p.nodes, p.keyspaces, p.partitions, p.complete = map[uint64]*clusterpb.Node{},
		map[uint32]*clusterpb.Keyspace{}, map[uint64]*clusterpb.Partition{}, false
}

func (p *picture) take(u *clusterpb.TableUpdate) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if u.Cluster != testCluster {
		return fmt.Errorf("an update of cluster %x", u.Cluster)
	}
	if u.Reset_ {
		p.clear()
		p.resets++
	}
	p.updates++
	for _, n := range u.Nodes {
		p.nodes[n.Id] = n
	}
	for _, k := range u.Keyspaces {
		p.keyspaces[k.Id] = k
	}
	for _, d := range u.Partitions {
		p.partitions[d.Id] = d
	}
	for _, id := range u.RemovedKeyspaces {
		delete(p.keyspaces, id)
	}
	for _, id := range u.RemovedPartitions {
		delete(p.partitions, id)
	}
	if u.Revision != 0 && u.Revision < p.revision {
		return fmt.Errorf("revision %d after %d", u.Revision, p.revision)
	}
	p.revision = max(p.revision, u.Revision)
	p.complete = p.complete || u.Complete
	return nil
}

// matches compares the picture with what the core lists.
func (p *picture) matches(t *testing.T, client *coreclient.Client) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	nodes, err := client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes.Nodes) != len(p.nodes) {
		t.Errorf("the picture has %d nodes, the core %d", len(p.nodes), len(nodes.Nodes))
	}
	for _, n := range nodes.Nodes {
		if n.Stats = nil; !proto.Equal(n, p.nodes[n.Id]) {
			t.Errorf("node %v; in the picture %v", n, p.nodes[n.Id])
		}
	}
	keyspaces, err := client.ListKeyspaces(t.Context(), &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range keyspaces.Keyspaces {
		if !proto.Equal(info.Keyspace, p.keyspaces[info.Keyspace.Id]) {
			t.Errorf("keyspace %v; in the picture %v", info.Keyspace, p.keyspaces[info.Keyspace.Id])
		}
	}
	partitions := partitionsIn(t, client, "")
	if len(keyspaces.Keyspaces) != len(p.keyspaces) || len(partitions) != len(p.partitions) {
		t.Errorf("the picture has %d keyspaces and %d partitions, the core %d and %d",
			len(p.keyspaces), len(p.partitions), len(keyspaces.Keyspaces), len(partitions))
	}
	for _, info := range partitions {
		if !proto.Equal(info.Partition, p.partitions[info.Partition.Id]) {
			t.Errorf("partition %v; in the picture %v", info.Partition, p.partitions[info.Partition.Id])
		}
	}
}

func TestWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		for i := range 3 {
			_, stop := c.register(client, i+1, "")
			defer stop()
		}
		create(t, c, client, hash("first", 1500, 3))
		early, late := newPicture(), newPicture()
		ctx, cancel := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		defer streams.Wait()
		defer cancel()
		streams.Go(func() { _ = client.Watch(ctx, 0, early.take) })
		synctest.Wait()
		if !early.complete || len(early.partitions) != 1500 || early.updates < 3 {
			t.Fatalf("at first: complete %v, %d partitions in %d updates", early.complete,
				len(early.partitions), early.updates)
		}
		create(t, c, client, hash("second", 300, 1))
		if _, err := client.DropKeyspace(t.Context(),
			&clusterpb.DropKeyspaceRequest{Name: "first"}); err != nil {
			t.Fatal(err)
		}
		_, stop := c.register(client, 4, "")
		synctest.Wait()
		c.await("the first is gone", func() bool { return keyspaceOf(t, client, "first") == nil })
		synctest.Wait()
		early.matches(t, client)
		stop()
		time.Sleep(15 * time.Second) // node 4 dies
		synctest.Wait()
		early.matches(t, client)
		if early.nodes[4].Alive {
			t.Error("node 4 is alive")
		}
		// Another stream, by way of another member, and one that resumes.
		streams.Go(func() { _ = client.Watch(ctx, 0, late.take) })
		synctest.Wait()
		late.matches(t, client)
		resumed := newPicture()
		resumed.nodes, resumed.keyspaces, resumed.partitions = maps.Clone(late.nodes),
			maps.Clone(late.keyspaces), maps.Clone(late.partitions)
		from := late.revision
		create(t, c, client, hash("third", 5, 1))
		streams.Go(func() { _ = client.Watch(ctx, from, resumed.take) })
		synctest.Wait()
		resumed.matches(t, client)
		if resumed.resets != 0 || !resumed.complete || resumed.updates > 20 {
			t.Errorf("resumed with %d resets, complete %v, in %d updates", resumed.resets,
				resumed.complete, resumed.updates)
		}
		// When what it would need has been compacted, and is not in memory any more, everything
		// comes anew.
		create(t, c, client, hash("large", 9000, 1))
		if _, err := c.members[0].store.Do(ctx,
			store.Compact(c.members[0].store.Revision())); err != nil {
			t.Fatal(err)
		}
		anew := newPicture()
		streams.Go(func() { _ = client.Watch(ctx, from, anew.take) })
		synctest.Wait()
		anew.matches(t, client)
		if anew.resets != 1 {
			t.Errorf("%d resets after a compaction", anew.resets)
		}
	})
}

func TestWatchRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		stranger := c.clientWith("stranger", coreclient.Config{Core: c.addresses(),
			Cluster: func() uint64 { return 9 }})
		if err := stranger.Watch(t.Context(), 0,
			newPicture().take); status.Code(errors.Unwrap(err)) != codes.FailedPrecondition {
			t.Errorf("a stranger's stream: %v", err)
		}
		// A member without a leader ends its streams: it would be silent for ever.
		ended := make(chan error, 1)
		go func() { ended <- client.Watch(t.Context(), 0, newPicture().take) }()
		synctest.Wait()
		c.elect(nil)
		if err := <-ended; status.Code(errors.Unwrap(err)) != codes.Unavailable {
			t.Errorf("the stream of a member without a leader: %v", err)
		}
	})
}

func TestClientFindsTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		list := func(client *coreclient.Client, limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := client.ListNodes(ctx, &clusterpb.ListNodesRequest{})
			return err
		}
		for _, m := range c.members {
			c.elect(m)
			if err := list(client, time.Second); err != nil || client.Leader() != m.address {
				t.Errorf("with %s as leader: %v; the client believes in %s",
					m.address, err, client.Leader())
			}
		}
		// A client that knows only one member follows its hints.
		one := c.client("one", "core1:1")
		if err := list(one, time.Second); err != nil || one.Leader() != "core3:1" {
			t.Errorf("with one address: %v", err)
		}
		// No leader: the client tries until there is one, or its time is up.
		c.elect(nil)
		err := list(client, 2*time.Second)
		if !errors.Is(err, coreclient.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "3 of 3 members answer") {
			t.Errorf("without a leader: %v", err)
		}
		if client.WaitingFor() == "" {
			t.Error("the client does not say what it waits for")
		}
		time.AfterFunc(5*time.Second, func() { c.elect(c.members[1]) })
		if err := list(client, time.Minute); err != nil || client.WaitingFor() != "" {
			t.Errorf("with a leader after 5 s: %v, %s", err, client.WaitingFor())
		}
		// Cut off from two members, of which one leads.
		c.network.CutBoth("client", "core2", memnet.Break)
		c.network.CutBoth("client", "core3", memnet.Break)
		if err := list(client, 2*time.Second); !errors.Is(err, coreclient.ErrUnavailable) ||
			!strings.Contains(err.Error(),
				"no quorum: 1 of 3 members answer (core1:1); core2:1 does not (") {
			t.Errorf("with one member reachable: %v", err)
		}
		c.network.CutBoth("client", "core1", memnet.Break)
		if err := list(client, 2*time.Second); !errors.Is(err, coreclient.ErrUnavailable) ||
			!strings.Contains(err.Error(), "no quorum: 0 of 3 members answer; core1:1 does not (") {
			t.Errorf("with none reachable: %v", err)
		}
		c.network.HealAll()
		if err := list(client, time.Minute); err != nil {
			t.Errorf("after the network came back: %v", err)
		}
		client.Close()
		if err := list(client, time.Minute); err == nil {
			t.Error("a closed client answers")
		}
	})
}

// outsider is a server that is not a member of the core, with a node's copy of the table.
type outsider struct {
	changed chan struct{} // capacity 1
	picture *picture
}

func (o *outsider) Subscribe(ctx context.Context, emit func(*clusterpb.TableUpdate) error) error {
	for sent := false; ; sent = true {
		o.picture.mu.Lock()
		u := &clusterpb.TableUpdate{Complete: !sent, Revision: o.picture.revision, Cluster: testCluster}
		for _, n := range o.picture.nodes {
			u.Nodes = append(u.Nodes, n)
		}
		for _, k := range o.picture.keyspaces {
			u.Keyspaces = append(u.Keyspaces, k)
		}
		for id, p := range o.picture.partitions {
			u.Partitions = append(u.Partitions, p)
			u.Leaders = append(u.Leaders, &clusterpb.Leader{Partition: id, Node: 1, Term: 1})
		}
		o.picture.mu.Unlock()
		if err := emit(u); err != nil {
			return err
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *outsider) SubscribeTo(ctx context.Context, _ []uint32, _ <-chan []uint32, _ int,
	emit func(*clusterpb.TableUpdate) error) error {
	return o.Subscribe(ctx, emit)
}

func TestClusterServiceAnywhere(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, coreClient *coreclient.Client) {
		_, stop := c.register(coreClient, 1, "")
		defer stop()
		out := &outsider{changed: make(chan struct{}, 1), picture: newPicture()}
		l, err := c.network.Listen("node1:1")
		if err != nil {
			t.Fatal(err)
		}
		server := rpc.NewServer(rpc.ServerConfig{})
		clusterpb.RegisterClusterServer(server, NewClusterService(ClusterConfig{
			Client: c.client("node1"), Table: func() table.Source { return out },
			Status: func() *clusterpb.StatusResponse {
				return &clusterpb.StatusResponse{Cluster: testCluster, Node: 1}
			},
		}))
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		defer serving.Wait()
		defer server.Stop()
		d := client.NewDialer(client.DialerConfig{Dial: c.network.Dialer("app")})
		defer d.Close()

		// Through a node, and through a member that does not lead: the leader answers.
		for i, address := range []string{"node1:1", "core1:1", "core2:1"} {
			conn, err := d.Conn(address)
			if err != nil {
				t.Fatal(err)
			}
			api := clusterpb.NewClusterClient(conn)
			name := fmt.Sprint("ks", i)
			if _, err := api.CreateKeyspace(t.Context(), hash(name, 3, 1)); err != nil {
				t.Fatalf("through %s: %v", address, err)
			}
			c.await("active", func() bool {
				return keyspaceOf(t, coreClient, name).Keyspace.State == clusterpb.KeyspaceState_ACTIVE
			})
			stream, err := api.ListPartitions(t.Context(),
				&clusterpb.ListPartitionsRequest{Keyspace: name})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if info, err := stream.Recv(); err != nil || info.Keyspace != name {
					t.Fatalf("through %s: %v, %v", address, info, err)
				}
			}
			if _, err := api.CreateKeyspace(t.Context(),
				hash(name, 3, 1)); status.Code(err) != codes.AlreadyExists {
				t.Errorf("through %s: %v", address, err)
			}
			st, err := api.Status(t.Context(), &clusterpb.StatusRequest{})
			if err != nil || st.CoreLeader != "core1:1" || len(st.Members) != 3 ||
				st.Core != (i > 0) || st.Cluster != testCluster {
				t.Errorf("status of %s: %v, %v", address, st, err)
			}
		}

		conn, _ := d.Conn("node1:1")
		api := clusterpb.NewClusterClient(conn)
		watch := func(name string) (*clusterpb.TableUpdate, error) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := api.WatchTable(ctx, &clusterpb.WatchTableRequest{Keyspace: name})
			if err != nil {
				return nil, err
			}
			return stream.Recv()
		}
		if _, err := watch("nowhere"); status.Code(err) != codes.NotFound {
			t.Errorf("table of an unknown keyspace: %v", err)
		}
		if _, err := watch("No Name"); status.Code(err) != codes.NotFound {
			t.Errorf("table of an impossible keyspace: %v", err)
		}
		// The node has not heard of the keyspace, the core has: the answer comes when the node has
		// it too.
		if _, err := watch("ks1"); status.Code(err) != codes.Unavailable {
			t.Errorf("table of a keyspace that never arrives: %v", err)
		}
		time.AfterFunc(time.Second, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = coreClient.Watch(ctx, 0, out.picture.take)
			out.changed <- struct{}{}
		})
		u, err := watch("ks1")
		if err != nil || !u.Complete || len(u.Partitions) != 3 || len(u.Keyspaces) != 1 ||
			len(u.Leaders) != 3 || len(u.Nodes) != 1 {
			t.Errorf("table of a keyspace that arrives late: %v, %v", u, err)
		}
		if u, err := watch(""); err != nil || len(u.Partitions) != 9 || len(u.Keyspaces) != 3 {
			t.Errorf("the whole table: %v, %v", u, err)
		}
	})
}

func TestPieces(t *testing.T) {
	u := &clusterpb.TableUpdate{Reset_: true, Complete: true, Revision: 7,
		Nodes: []*clusterpb.Node{{Id: 1}}}
	for i := range 2*maxRows + 1 {
		u.Partitions = append(u.Partitions, &clusterpb.Partition{Id: uint64(i)})
	}
	var got []*clusterpb.TableUpdate
	if err := sendPieces(u,
		func(u *clusterpb.TableUpdate) error { got = append(got, u); return nil }); err != nil {
		t.Fatal(err)
	}
	n := 0
	for i, piece := range got {
		n += len(piece.Partitions)
		if piece.Reset_ != (i == 0) || piece.Complete != (i == len(got)-1) ||
			len(piece.Partitions) > maxRows {
			t.Errorf("piece %d: reset %v, complete %v, %d partitions", i, piece.Reset_,
				piece.Complete, len(piece.Partitions))
		}
	}
	if len(got) != 3 || n != len(u.Partitions) {
		t.Errorf("%d partitions in %d pieces", n, len(got))
	}
}

// All that one transaction of the core changes in the table reaches receivers in one update,
// however much it is.
func TestRevisionsComeWhole(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		for i := range 3 {
			_, stop := c.register(client, i+1, "")
			defer stop()
		}
		create(t, c, client, hash("all", 700, 1))
		all := newPicture()
		ctx, cancel := context.WithCancel(t.Context())
		var streams sync.WaitGroup
		defer streams.Wait()
		defer cancel()
		parts := map[uint64]int{}
		streams.Go(func() {
			_ = client.Watch(ctx, 0, func(u *clusterpb.TableUpdate) error {
				for _, p := range u.Partitions {
					if p.WantedLeader == 77 {
						parts[u.Revision]++
					}
				}
				return all.take(u)
			})
		})
		synctest.Wait()
		var ops []*storepb.Op
		for _, p := range all.partitions {
			next := proto.Clone(p).(*clusterpb.Partition)
			next.WantedLeader = 77
			value, err := proto.Marshal(next)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, store.Put(
				meta.PartitionKey(keys.KeyspaceID(p.Keyspace), keys.PartitionID(p.Id)),
				value))
		}
		if _, err := c.members[0].store.Do(ctx, store.If(nil, ops, nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(parts) != 1 || len(ops) != 700 {
			t.Errorf("%d partitions changed at once, and the updates by revision had %v", len(ops), parts)
		}
	})
}

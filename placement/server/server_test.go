package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func TestRegister(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		// A refusal is final; what is worth trying again ends with the context.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		request := func(change func(*clusterpb.RegisterNodeRequest)) (
			*clusterpb.RegisterNodeResponse, error) {
			r := &clusterpb.RegisterNodeRequest{Server: 11, Address: "a:1",
				Locality: &clusterpb.Locality{Zone: "z"}}
			change(r)
			return client.Register(ctx, r)
		}
		first, err := request(func(*clusterpb.RegisterNodeRequest) {})
		if err != nil || first.Node != 1 || first.Cluster != testCluster || first.LeaseMillis != 9000 {
			t.Fatalf("first: %v, %v", first, err)
		}
		for name, c := range map[string]struct {
			change func(*clusterpb.RegisterNodeRequest)
			node   uint64
			want   string
		}{
			"the same directory again": {func(r *clusterpb.RegisterNodeRequest) {}, 1, ""},
			"a restart": {func(r *clusterpb.RegisterNodeRequest) {
				r.Cluster, r.Node, r.StartedUnix = testCluster, 1, 5
			}, 1, ""},
			"a wiped directory": {func(r *clusterpb.RegisterNodeRequest) {
				r.Cluster, r.Node, r.Server = testCluster, 1, 77
			}, 0, "another data directory"},
			"an unknown node": {
				func(r *clusterpb.RegisterNodeRequest) { r.Cluster, r.Node = testCluster, 9 },
				0, "not known"},
			"another cluster": {func(r *clusterpb.RegisterNodeRequest) {
				r.Cluster, r.Node = 5, 1
			}, 0, "cluster 00000000000000c1"},
			"no directory": {func(r *clusterpb.RegisterNodeRequest) { r.Server = 0 }, 0,
				"name of its data directory"},
			"a long address": {func(r *clusterpb.RegisterNodeRequest) {
				r.Address = strings.Repeat("x", 2000)
			}, 0, "at most"},
		} {
			r, err := request(c.change)
			if c.want == "" && (err != nil || r.Node != c.node) || c.want != "" &&
				(err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
		second, err := request(func(r *clusterpb.RegisterNodeRequest) {
			r.Server, r.Address = 12, "b:1"
		})
		if err != nil || second.Node != 2 {
			t.Fatalf("second: %v, %v", second, err)
		}
		if r, err := client.Heartbeat(ctx,
			&clusterpb.HeartbeatRequest{Cluster: testCluster, Node: 2, Server: 11}); err == nil {
			t.Errorf("a heartbeat with another directory: %v", r)
		}
		// A copy of a directory, on another machine, while the node is alive; and the node itself,
		// when it has moved.
		copied, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r, err := client.Register(copied, &clusterpb.RegisterNodeRequest{Cluster: testCluster,
			Node: 2, Server: 12, Address: "c:1"}); err == nil ||
			!strings.Contains(err.Error(), "copied?") {
			t.Errorf("a copy: %v, %v", r, err)
		}
		time.Sleep(12 * time.Second)
		moved, err := client.Register(t.Context(), &clusterpb.RegisterNodeRequest{
			Cluster: testCluster, Node: 2, Server: 12, Address: "c:1"})
		if err != nil || moved.Node != 2 {
			t.Fatalf("moved: %v, %v", moved, err)
		}
		list, err := client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{})
		if err != nil || len(list.Nodes) != 2 || list.Nodes[0].Alive || !list.Nodes[1].Alive ||
			list.Nodes[1].Address != "c:1" {
			t.Fatalf("nodes: %v, %v", list, err)
		}
		if list.CoreLeader != "core1:1" || len(list.Members) != 3 {
			t.Errorf("core: %v", list)
		}
	})
}

// A node that comes to an address displaces the one that was there; should that be there after all,
// it is alive again with its next heartbeat.
func TestNodeAtAnAddressThatIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		register := func(server, node uint64, address string) {
			t.Helper()
			if _, err := client.Register(t.Context(), &clusterpb.RegisterNodeRequest{Server: server,
				Node: node, Cluster: testCluster, Address: address}); err != nil {
				t.Fatal(err)
			}
		}
		alive := func(want ...uint64) {
			t.Helper()
			list, err := client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var got []uint64
			for _, n := range list.Nodes {
				if n.Alive {
					got = append(got, n.Id)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("nodes %v are alive, not %v", got, want)
			}
		}
		register(11, 0, "a:1")
		register(12, 0, "b:1")
		alive(1, 2)
		register(13, 0, "a:1") // the disk of the first one was replaced
		alive(2, 3)
		register(13, 3, "a:1") // a restart
		alive(2, 3)
		if _, err := client.Heartbeat(t.Context(),
			&clusterpb.HeartbeatRequest{Cluster: testCluster, Node: 1, Server: 11}); err != nil {
			t.Fatal(err)
		}
		alive(1, 2, 3)
		time.Sleep(12 * time.Second)
		register(12, 2, "a:1") // moved; the others are dead anyway
		alive(2)
		register(11, 1, "a:1") // its address has not changed: a restart
		alive(1, 2)
	})
}

// The same if the core's leader falls at any step of the registration, and it is tried again.
func TestNodeAtAnAddressThatIsTakenDespiteElections(t *testing.T) {
	for _, applied := range []bool{false, true} {
		reached := true
		for at := 1; reached; at++ {
			inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
				register := func(server uint64) {
					t.Helper()
					if _, err := client.Register(t.Context(), &clusterpb.RegisterNodeRequest{
						Server: server, Address: "a:1"}); err != nil {
						t.Fatal(err)
					}
				}
				register(11)
				c.mu.Lock()
				before := c.proposed
				c.crashAt, c.applied = before+at, applied
				c.mu.Unlock()
				register(12)
				list, err := client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{})
				if err != nil || len(list.Nodes) != 2 || list.Nodes[0].Alive || !list.Nodes[1].Alive {
					t.Errorf("the leader fell at proposal %d, applied: %v; nodes %v, %v",
						at, applied, list, err)
				}
				c.mu.Lock()
				reached = c.proposed >= c.crashAt
				if !reached && at < 4 {
					t.Errorf("only %d proposals were seen", c.proposed-before)
				}
				c.mu.Unlock()
			})
			if t.Failed() {
				return
			}
		}
	}
}

func TestValidation(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		_, stop := c.register(client, 1, "")
		defer stop()
		create(t, c, client, hash("there", 2, 1))
		split := func(at ...string) *clusterpb.CreateKeyspaceRequest {
			r := &clusterpb.CreateKeyspaceRequest{Name: "x",
				Partitioning: clusterpb.Partitioning_RANGE, ReplicationFactor: 1}
			for _, s := range at {
				r.SplitAt = append(r.SplitAt, []byte(s))
			}
			return r
		}
		large := split()
		for i := range 200 {
			large.SplitAt = append(large.SplitAt, append(fmt.Appendf(nil, "%08d", i),
				make([]byte, 8000)...))
		}
		before := c.members[0].store.Revision()
		for name, bad := range map[string]struct {
			request *clusterpb.CreateKeyspaceRequest
			code    codes.Code
			want    string
		}{
			"no name":            {hash("", 1, 1), codes.InvalidArgument, "1 to 63"},
			"long name":          {hash(strings.Repeat("x", 64), 1, 1), codes.InvalidArgument, "1 to 63"},
			"capitals":           {hash("Users", 1, 1), codes.InvalidArgument, "a-z"},
			"slash":              {hash("a/b", 1, 1), codes.InvalidArgument, "a-z"},
			"hash:0":             {hash("x", 0, 1), codes.InvalidArgument, "hash:0"},
			"hash:16385":         {hash("x", 16385, 1), codes.InvalidArgument, "16384"},
			"two replicas":       {hash("x", 1, 2), codes.InvalidArgument, "1, 3 or 5"},
			"unsorted":           {split("b", "a"), codes.InvalidArgument, `"b" comes before "a"`},
			"repeated":           {split("a", "a"), codes.InvalidArgument, "repeated"},
			"empty split point":  {split("", "a"), codes.InvalidArgument, "empty"},
			"large split point":  {split(strings.Repeat("x", 9000)), codes.InvalidArgument, "too large"},
			"large split points": {large, codes.InvalidArgument, "together"},
			"both": {&clusterpb.CreateKeyspaceRequest{Name: "x", HashPartitions: 1,
				SplitAt: [][]byte{{1}}}, codes.InvalidArgument, "no split points"},
			"neither": {&clusterpb.CreateKeyspaceRequest{Name: "x", Partitioning: 7},
				codes.InvalidArgument, "not known"},
			"long window": {&clusterpb.CreateKeyspaceRequest{Name: "x", HashPartitions: 1,
				GcWindowSeconds: 1 << 60}, codes.InvalidArgument, "GC window"},
			"exists": {hash("there", 1, 1), codes.AlreadyExists, "exists"},
			"more than nodes": {hash("x", 1, 3), codes.FailedPrecondition,
				"3 replicas of each partition, on as many nodes, and the cluster has 1 node;"},
			"default of three": {hash("x", 1, 0), codes.FailedPrecondition, "3 replicas"},
		} {
			_, err := client.CreateKeyspace(t.Context(), bad.request)
			if status.Code(err) != bad.code || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%s: %v, want %s with %q", name, err, bad.code, bad.want)
			}
		}
		if _, err := client.DropKeyspace(t.Context(),
			&clusterpb.DropKeyspaceRequest{Name: "nowhere"}); status.Code(err) != codes.NotFound {
			t.Errorf("drop of an unknown keyspace: %v", err)
		}
		if after := c.members[0].store.Revision(); after != before {
			t.Errorf("refused requests changed something: revision %d, was %d", after, before)
		}
	})
}

func TestHashAndRange(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		for i := range 4 {
			_, stop := c.register(client, i+1, fmt.Sprint("z", i%2))
			defer stop()
		}
		create(t, c, client, hash("h", 1000, 3))
		create(t, c, client, &clusterpb.CreateKeyspaceRequest{
			Name: "r", Partitioning: clusterpb.Partitioning_RANGE,
			SplitAt: [][]byte{[]byte("f"), []byte("m"), []byte("t")}, ReplicationFactor: 1,
			GcWindowSeconds: 60,
		})
		leaders, ids := map[uint64]int{}, map[uint64]bool{}
		for i, info := range partitionsIn(t, client, "h") {
			p := info.Partition
			if err := keys.ValidatePartition(p); err != nil || p.Hash != uint32(i) ||
				len(p.Replicas) != 3 || ids[p.Id] || p.Id < 100 || p.Generation != 1 {
				t.Fatalf("partition %v: %v", p, err)
			}
			ids[p.Id] = true
			leaders[p.Replicas[0].Node]++
		}
		if len(ids) != 1000 || len(leaders) != 4 {
			t.Fatalf("%d partitions, preferred leaders %v", len(ids), leaders)
		}
		for node, n := range leaders {
			if n != 250 {
				t.Errorf("node %d is the preferred leader of %d partitions of 1000", node, n)
			}
		}
		ranges := partitionsIn(t, client, "r")
		if len(ranges) != 4 {
			t.Fatalf("%d partitions, want 4", len(ranges))
		}
		at := keys.KeyspacePrefix(keys.KeyspaceID(ranges[0].Partition.Keyspace))
		for _, info := range ranges {
			if !bytes.Equal(info.Partition.Start, at) || ids[info.Partition.Id] {
				t.Errorf("partition %v: starts at %x, want %x", info.Partition.Id, info.Partition.Start, at)
			}
			at = info.Partition.End
		}
		if ks := keyspaceOf(t, client, "r"); ks.Keyspace.GcWindowSeconds != 60 ||
			ks.Partitions != 4 || ks.WaitingFor != "" {
			t.Errorf("keyspace: %v", ks)
		}
	})
}

func TestWaitsForNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		var stops []func()
		for i := range 3 {
			_, stop := c.register(client, i+1, "")
			stops = append(stops, stop)
		}
		stops[1]()
		stops[2]()
		time.Sleep(15 * time.Second)
		if _, err := client.CreateKeyspace(t.Context(), hash("x", 8, 3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		info := keyspaceOf(t, client, "x")
		if info.Keyspace.State != clusterpb.KeyspaceState_CREATING ||
			info.WaitingFor != "2 more nodes (has 1 alive, needs 3)" {
			t.Fatalf("with one node alive: %v", info)
		}
		_, stop2 := c.register(client, 2, "")
		_, stop3 := c.register(client, 3, "")
		c.await("the keyspace is active", func() bool {
			return keyspaceOf(t, client, "x").Keyspace.State == clusterpb.KeyspaceState_ACTIVE
		})
		if n := len(partitionsIn(t, client, "x")); n != 8 {
			t.Errorf("%d partitions, want 8", n)
		}
		stops[0]()
		stop2()
		stop3()
	})
}

func TestTokensAndNames(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		_, stop := c.register(client, 1, "")
		defer stop()
		request := hash("x", 4, 1)
		request.Token = 5
		first := create(t, c, client, request)
		again, err := client.CreateKeyspace(t.Context(), request)
		if err != nil || again.Keyspace.Id != first.Id ||
			again.Keyspace.State != clusterpb.KeyspaceState_ACTIVE {
			t.Fatalf("again: %v, %v", again, err)
		}
		other := hash("y", 4, 1)
		other.Token = 5
		if _, err := client.CreateKeyspace(t.Context(),
			other); status.Code(err) != codes.InvalidArgument {
			t.Errorf("another request with the same token: %v", err)
		}
		highest := partitionsIn(t, client, "x")[3].Partition.Id
		drop := &clusterpb.DropKeyspaceRequest{Name: "x", Token: 6}
		for range 2 {
			if _, err := client.DropKeyspace(t.Context(), drop); err != nil {
				t.Fatal(err)
			}
		}
		// The name is free at once, and nothing of the old keyspace comes back.
		second := create(t, c, client, hash("x", 2, 1))
		if second.Id <= first.Id {
			t.Errorf("keyspace id %d after %d", second.Id, first.Id)
		}
		for _, info := range partitionsIn(t, client, "x") {
			if info.Partition.Id <= highest {
				t.Errorf("partition id %d was given out before", info.Partition.Id)
			}
		}
		if _, err := client.DropKeyspace(t.Context(), drop); err != nil {
			t.Errorf("repeated drop: %v", err)
		}
		if keyspaceOf(t, client, "x") == nil {
			t.Error("a repeated drop dropped the younger keyspace of that name")
		}
		c.await("the first is gone", func() bool { return len(partitionsIn(t, client, "")) == 2 })
		// Old tokens are forgotten, so their memory is bounded.
		for range meta.MaxTokens {
			if _, err := client.DropKeyspace(t.Context(),
				&clusterpb.DropKeyspaceRequest{Name: "nowhere"}); status.Code(err) != codes.NotFound {
				t.Fatal(err)
			}
		}
	})
}

// The leader falls at each proposal of a creation and a drop, once before and once after it: the
// next leader completes everything, and nothing is done twice.
func TestNextLeaderContinues(t *testing.T) {
	const partitions = 2*meta.Chunk + 10
	for _, applied := range []bool{false, true} {
		for at := 1; ; at++ {
			reached := false
			synctest.Test(t, func(t *testing.T) {
				c := newCore(t, 3, nil)
				defer c.close()
				c.elect(c.members[0])
				client := c.client("client")
				_, stop := c.register(client, 1, "")
				defer stop()
				c.mu.Lock()
				c.crashAt, c.applied = c.proposed+at, applied
				c.mu.Unlock()
				ks := create(t, c, client, hash("x", partitions, 1))
				ids := map[uint64]bool{}
				for i, info := range partitionsIn(t, client, "x") {
					if info.Partition.Hash != uint32(i) || ids[info.Partition.Id] {
						t.Errorf("partition %d: %v", i, info.Partition)
					}
					ids[info.Partition.Id] = true
				}
				if len(ids) != partitions || ks.Id != 1 {
					t.Errorf("keyspace %d has %d partitions, want 1 with %d", ks.Id, len(ids), partitions)
				}
				if _, err := client.DropKeyspace(t.Context(),
					&clusterpb.DropKeyspaceRequest{Name: "x"}); err != nil {
					t.Error(err)
				}
				c.await("the keyspace is gone", func() bool { return keyspaceOf(t, client, "x") == nil })
				v := c.members[0].store.Stale()
				for _, prefix := range []string{meta.PartitionPrefix, meta.KeyspacePrefix, meta.NamePrefix,
					meta.CreationPrefix} {
					if n, err := meta.Count(v, prefix); err != nil || n != 0 {
						t.Errorf("%d records left under %s: %v", n, prefix, err)
					}
				}
				if second := create(t, c, client, hash("x", 1, 1)); second.Id != 2 {
					t.Errorf("the next keyspace has the id %d, want 2", second.Id)
				}
				if id := partitionsIn(t, client, "x")[0].Partition.Id; id != 100+partitions {
					t.Errorf("the next partition has the id %d, want %d", id, 100+partitions)
				}
				c.mu.Lock()
				reached = c.proposed >= c.crashAt
				c.mu.Unlock()
			})
			if t.Failed() {
				t.Fatalf("the leader fell at proposal %d, applied: %v", at, applied)
			}
			if !reached {
				if at < 8 {
					t.Fatalf("only %d proposals were seen", at)
				}
				break
			}
		}
	}
}

func TestHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		for i := range 2 {
			_, stop := c.register(client, i+1, "")
			defer stop()
		}
		create(t, c, client, hash("x", 2, 1))
		id := partitionsIn(t, client, "x")[0].Partition.Id
		beat := func(node uint64, full bool, reports ...*clusterpb.PartitionReport) bool {
			t.Helper()
			r, err := client.Heartbeat(t.Context(), &clusterpb.HeartbeatRequest{
				Cluster: testCluster, Node: node, Server: 1000 + node, Full: full, Reports: reports,
				Stats: &clusterpb.NodeStats{Replicas: node},
			})
			if err != nil {
				t.Fatal(err)
			}
			return r.WantFull
		}
		report := func(term, membership uint64, lost bool) *clusterpb.PartitionReport {
			return &clusterpb.PartitionReport{Partition: id, Term: term, Generation: 1,
				Membership: membership, LiveKeys: term, SizeBytes: 10 * term, Lost: lost}
		}
		expect := func(what string, node, term uint64) {
			t.Helper()
			if info := partitionsIn(t, client, "x")[0]; info.LeaderNode != node ||
				info.Term != term || info.LiveKeys != term {
				t.Errorf("%s: leader %d at term %d with %d keys, want %d at %d", what,
					info.LeaderNode, info.Term, info.LiveKeys, node, term)
			}
		}
		if !beat(1, false) || beat(1, true, report(3, 1, false)) {
			t.Error("a full report is asked for until it has come")
		}
		expect("first", 1, 3)
		beat(2, true, report(2, 1, false))
		expect("an older term", 1, 3)
		beat(2, false, report(3, 1, false))
		expect("the same term", 1, 3)
		beat(2, false, report(4, 1, false))
		expect("a newer term", 2, 4)
		beat(1, false, report(3, 1, true))
		expect("the old leader has lost it", 2, 4)
		beat(1, false, report(1, 2, false))
		expect("a newer epoch", 1, 1)
		beat(1, true)
		expect("a full report without it", 0, 1)
		c.elect(c.members[1])
		if !beat(2, false) {
			t.Error("a new leader does not ask for everything")
		}
		if list, err := client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{}); err != nil ||
			list.Nodes[1].Stats.GetReplicas() != 2 || list.CoreLeader != "core2:1" {
			t.Errorf("nodes: %v, %v", list, err)
		}
	})
}

// A store of another cluster is not served.
func TestForeignStore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		synctest.Wait()
		m := c.members[0]
		other, err := New(Config{Store: m.store, Cluster: 5,
			Members: []*clusterpb.CoreMember{{Address: m.address, Replica: 1}},
			Membership: membership.Config{Group: m, Servers: testServers{c}, Peers: testPeers{c},
				Own: noHealth{}}})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := other.ListNodes(t.Context(), nil); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "mixed") {
			t.Errorf("a store of another cluster: %v", err)
		}
	})
}

package kvtest_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// passedOnTo is the member to which a data node passes the calls of a client on.
func passedOnTo(t *testing.T, c *kvtest.Cluster, client *clientv3.Client) (id uint64, server int) {
	t.Helper()
	r, err := client.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	members, err := client.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members.Members {
		if m.ID == r.Header.MemberId {
			return m.ID, slices.Index(c.Endpoints(), strings.TrimPrefix(m.ClientURLs[0], "http://"))
		}
	}
	t.Fatalf("member %x is not among %v", r.Header.MemberId, members.Members)
	return 0, 0
}

// TestDataNodesLeaveMembersThatAreCutOff: a member that the other members do not reach, and the
// data nodes do, keeps the calls of a data node's clients for a few seconds, and no longer.
func TestDataNodesLeaveMembersThatAreCutOff(t *testing.T) {
	for name, leads := range map[string]bool{"the leader": true, "a follower": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const (
					node     = 3
					deadline = 5 * time.Second // etcdctl's
					within   = 10 * time.Second
				)
				c := kvtest.Start(t, kvtest.Options{Nodes: 1, Cores: 3, Separate: true,
					Latency: latency})
				coordinationLeader(t, c)
				client, err := clientv3.New(clientv3.Config{
					Endpoints: c.Endpoints()[node:], Logger: zap.NewNop(),
					DialOptions: []grpc.DialOption{grpc.WithContextDialer(c.Dialer("client"))}})
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				calls := func() error {
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					if _, err := client.Get(ctx, "k"); err != nil {
						return err
					}
					_, err := client.Put(ctx, "k", "v")
					return err
				}
				if err := calls(); err != nil {
					t.Fatal(err)
				}
				id, at := passedOnTo(t, c, client)
				if leads != c.Process(at).LeadsCoordination() {
					members, err := client.MemberList(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					next := slices.IndexFunc(members.Members, func(m *pb.Member) bool {
						return (m.ID == id) == leads
					})
					if _, err := client.MoveLeader(t.Context(), members.Members[next].ID); err != nil {
						t.Fatal(err)
					}
				}
				for other := range 3 {
					if other != at {
						c.Cut(at, other, memnet.Stall)
						c.Cut(other, at, memnet.Stall)
					}
				}
				cut := time.Now()
				for err := calls(); err != nil; err = calls() {
					t.Logf("after %s: %v", time.Since(cut), err)
					if time.Since(cut) > within {
						t.Fatalf("no call has succeeded in %s", time.Since(cut))
					}
				}
				t.Logf("a call succeeds after %s", time.Since(cut))
				for range 20 {
					if err := calls(); err != nil {
						t.Error(err)
					}
					time.Sleep(500 * time.Millisecond) // virtual
				}
			})
		})
	}
}

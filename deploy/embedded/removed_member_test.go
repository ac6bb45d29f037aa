package embedded

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// TestRemovedMemberCloses: the member of a server that is removed from the core closes its
// databases while the server lives on, although a client watches there.
func TestRemovedMemberCloses(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	client := etcdClient(t, nil, at[:3]...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server, url := candidate(t, at[:3])
	awaitTrue(t, "the server is added", func() bool {
		_, err := client.MemberAdd(ctx, []string{url})
		return err == nil
	})
	var p *corePart
	awaitTrue(t, "it serves", func() bool {
		p = server.member.part.Load()
		return p != nil && p.coordination.spaceAlarm.Load() != nil
	})
	watches := etcdClient(t, nil, url).Watch(ctx, "k")
	if _, err := client.MemberRemove(ctx, uint64(server.directory.Identity().Server)); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "its state is closed", func() bool {
		it, err := p.databases.State.NewIter(&pebble.IterOptions{})
		if err == nil {
			_ = it.Close()
		}
		return err != nil
	})
	if server.ctx.Err() != nil {
		t.Error("the server has ended")
	}
	cancel()
	for range watches {
		// Until the client has ended it.
	}
}

// TestAddedMemberIsTakenBack: a client that waits until a member is added hears that another client
// has removed it again.
func TestAddedMemberIsTakenBack(t *testing.T) {
	var unheard atomic.Pointer[string] // the address of a server that gets no Raft messages
	cluster := startEtcd(t, func(_ int, c *ServerConfig) {
		c.PeerFilter = func(to PeerLink, m []*peerpb.RaftMessage, send func([]*peerpb.RaftMessage)) {
			if at := unheard.Load(); at == nil || *at != to.Address {
				send(m)
			}
		}
	})
	at := cluster.Endpoints()
	client := etcdClient(t, nil, at[:3]...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server, url := candidate(t, at[:3])
	unheard.Store(&server.config.Advertise)
	id := uint64(server.directory.Identity().Server)
	added := make(chan error, 1)
	awaitTrue(t, "the server offers itself", func() bool {
		list, err := server.core.ListCore(ctx, &clusterpb.ListCoreRequest{})
		return err == nil && len(list.Candidates) > 0
	})
	go func() {
		_, err := client.MemberAdd(ctx, []string{url})
		added <- err
	}()
	awaitTrue(t, "it is removed", func() bool {
		list, err := client.MemberList(ctx)
		if err != nil || !slices.ContainsFunc(list.Members,
			func(m *pb.Member) bool { return m.ID == id }) {
			return false
		}
		_, err = client.MemberRemove(ctx, id)
		return err == nil
	})
	if err := <-added; status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the addition that was taken back: %v", err)
	}
}

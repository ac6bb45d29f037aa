package embedded

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
)

// candidate starts a server that offers itself to the core.
func candidate(t *testing.T, core []string) (*Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	s, err := StartServer(t.Context(), ServerConfig{Dir: t.TempDir(), Listen: address, Core: core,
		Roles: []string{RoleCore}, NewListener: func(string) (net.Listener, error) { return l, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s, "http://" + address
}

// TestEtcdMembers: clients of etcd add a member without a vote, let it vote, move and remove it,
// and hear etcd's errors.
func TestEtcdMembers(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	client := etcdClient(t, nil, at[:3]...)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := client.MemberAddAsLearner(ctx, []string{"http://127.0.0.1:1"}); status.Code(
		err) != codes.FailedPrecondition {
		t.Errorf("a server that does not run: %v", err)
	}
	server, url := candidate(t, at[:3])
	id := uint64(server.directory.Identity().Server)
	awaitTrue(t, "the server is added", func() bool {
		added, err := client.MemberAddAsLearner(ctx, []string{url})
		if err == nil && (added.Member.ID != id || !added.Member.IsLearner || len(added.Members) != 4) {
			t.Fatalf("added: %v", added)
		}
		return err == nil
	})
	_, secondURL := candidate(t, at[:3])
	awaitTrue(t, "a second one is refused", func() bool {
		_, err := client.MemberAddAsLearner(ctx, []string{secondURL})
		return errors.Is(err, rpctypes.ErrTooManyLearners)
	})
	members, err := client.MemberList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var voter *pb.Member
	for _, m := range members.Members {
		if m.ID != id {
			voter = m
		}
	}
	if _, err := client.MemberAdd(ctx, []string{url}); !errors.Is(err, rpctypes.ErrPeerURLExist) {
		t.Errorf("it is added again: %v", err)
	}
	if _, err := client.MemberPromote(ctx, voter.ID); !errors.Is(err, rpctypes.ErrMemberNotLearner) {
		t.Errorf("a voter is promoted: %v", err)
	}
	if _, err := client.MemberPromote(ctx, 1); !errors.Is(err, rpctypes.ErrMemberNotFound) {
		t.Errorf("a member that is not there is promoted: %v", err)
	}
	awaitTrue(t, "the learner votes", func() bool {
		_, err := client.MemberPromote(ctx, id)
		if err != nil && !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) {
			t.Fatal(err)
		}
		return err == nil
	})
	if members, err = client.MemberList(ctx); err != nil {
		t.Fatal(err)
	}
	for _, m := range members.Members {
		if m.IsLearner {
			t.Errorf("it has no vote: %v", m)
		}
	}
	// Where it is its server says; of one that is gone it can be said.
	if _, err := client.MemberUpdate(ctx, id, voter.PeerURLs); !errors.Is(err,
		rpctypes.ErrPeerURLExist) {
		t.Errorf("to the address of another: %v", err)
	}
	if _, err := client.MemberUpdate(ctx, 1, []string{url}); !errors.Is(err,
		rpctypes.ErrMemberNotFound) {
		t.Errorf("a member that is not there is moved: %v", err)
	}
	if _, err := client.MemberUpdate(ctx, id, []string{url}); err != nil {
		t.Errorf("to where it is: %v", err)
	}
	if _, err := client.MemberUpdate(ctx, id, []string{"http://127.0.0.1:1"}); status.Code(
		err) != codes.FailedPrecondition {
		t.Errorf("away from where it answers: %v", err)
	}
	if err := server.Close(ctx); err != nil {
		t.Fatal(err)
	}
	moved, err := client.MemberUpdate(ctx, id, []string{"http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range moved.Members {
		if m.ID == id && m.PeerURLs[0] != "http://127.0.0.1:1" {
			t.Errorf("it was moved: %v", m)
		}
	}
	if r, err := client.MemberRemove(ctx, id); err != nil || len(r.Members) != 3 {
		t.Errorf("it is removed: %v, %v", r, err)
	}
	if _, err := client.MemberRemove(ctx, id); !errors.Is(err, rpctypes.ErrMemberNotFound) {
		t.Errorf("again: %v", err)
	}
}

// TestEtcdRoomAlarm: a member whose store has reached its quota raises etcd's alarm, writes are
// refused by all, and go on when the store is smaller.
func TestEtcdRoomAlarm(t *testing.T) {
	cluster := startEtcd(t, nil)
	client := etcdClient(t, nil, cluster.Endpoints()[0])
	ctx := t.Context()
	if _, err := client.Put(ctx, "k", "v"); err != nil {
		t.Fatal(err)
	}
	s := cluster.Server(1)
	room := s.member.part.Load().coordination.spaceAlarm.Load()
	if due, raised := room.Due(); len(due) > 0 || raised {
		t.Errorf("with room: %v, %v", due, raised)
	}
	s.member.coordination().SetQuota(store.Quota{Bytes: 1,
		Member: uint64(s.directory.Identity().Server)})
	awaitTrue(t, "writes are refused", func() bool {
		_, err := client.Put(ctx, "k", "v")
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
	if _, err := client.Delete(ctx, "k"); err != nil {
		t.Error(err)
	}
	list, err := client.AlarmList(ctx)
	if err != nil || len(list.Alarms) != 1 ||
		list.Alarms[0].MemberID != uint64(s.directory.Identity().Server) {
		t.Errorf("%v, %v", list, err)
	}
	s.member.coordination().SetQuota(store.Quota{})
	awaitTrue(t, "writes go on", func() bool {
		_, err := client.Put(ctx, "k", "v")
		return err == nil
	})
}

package etcdapi

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

var errUnsupportedHere = fmt.Errorf("change the members: %w", errors.ErrUnsupported)

// The calls of an unmodified client.
func TestClient(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	put, err := s.Put(ctx, "a", "1")
	if err != nil || put.Header.Revision != 2 || put.Header.ClusterId != 0xc1 ||
		put.Header.MemberId != 0xe1 || put.Header.RaftTerm == 0 {
		t.Fatalf("put: %v, %v", put, err)
	}
	if put, err = s.Put(ctx, "a", "2", clientv3.WithPrevKV()); err != nil ||
		string(put.PrevKv.GetValue()) != "1" {
		t.Fatalf("put: %v, %v", put, err)
	}
	got, err := s.Get(ctx, "a")
	if err != nil || got.Count != 1 || string(got.Kvs[0].Value) != "2" || got.Kvs[0].Version != 2 ||
		got.Kvs[0].CreateRevision != 2 || got.Kvs[0].ModRevision != 3 || got.Header.Revision != 3 {
		t.Fatalf("get: %v, %v", got, err)
	}
	txn, err := s.Txn(ctx).If(clientv3.Compare(clientv3.Version("a"), "=", 2)).
		Then(clientv3.OpGet("a"), clientv3.OpPut("b", "x"), clientv3.OpGet("b")).
		Else(clientv3.OpDelete("a")).Commit()
	if err != nil || !txn.Succeeded || len(txn.Responses) != 3 || txn.Header.Revision != 4 ||
		txn.Responses[0].GetResponseRange().Header.Revision != 3 ||
		txn.Responses[2].GetResponseRange().Header.Revision != 4 {
		t.Fatalf("txn: %v, %v", txn, err)
	}
	deleted, err := s.Delete(ctx, "a", clientv3.WithPrefix(), clientv3.WithPrevKV())
	if err != nil || deleted.Deleted != 1 || len(deleted.PrevKvs) != 1 ||
		deleted.Header.Revision != 5 {
		t.Fatalf("delete: %v, %v", deleted, err)
	}
	if _, err := s.Compact(ctx, 4, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "a", clientv3.WithRev(3)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("get of a compacted revision: %v", err)
	}
	if got, err := s.Get(ctx, "a", clientv3.WithRev(4)); err != nil || got.Count != 1 {
		t.Errorf("get of the lowest revision: %v, %v", got, err)
	}
	status, err := s.Status(ctx, s.address)
	if err != nil || status.Version != Version || status.Leader != 0xe1 ||
		status.RaftAppliedIndex == 0 || status.DbSize == 0 || len(status.Errors) > 0 {
		t.Errorf("status: %v, %v", status, err)
	}
	members, err := s.MemberList(ctx)
	if err != nil || len(members.Members) != 1 || members.Members[0].ID != 0xe1 {
		t.Errorf("members: %v, %v", members, err)
	}
}

func TestLeases(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	lease, err := s.Grant(ctx, 60)
	if err != nil || lease.ID <= 0 || lease.TTL != 60 {
		t.Fatalf("grant: %v, %v", lease, err)
	}
	if _, err := s.Put(ctx, "a", "1", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	renewed, err := s.KeepAliveOnce(ctx, lease.ID)
	if err != nil || renewed.TTL != 60 || renewed.ID != lease.ID {
		t.Fatalf("keep alive: %v, %v", renewed, err)
	}
	info, err := s.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	if err != nil || info.GrantedTTL != 60 || info.TTL < 50 || info.TTL > 60 ||
		len(info.Keys) != 1 || string(info.Keys[0]) != "a" {
		t.Fatalf("time to live: %v, %v", info, err)
	}
	all, err := s.Leases(ctx)
	if err != nil || len(all.Leases) != 1 || all.Leases[0].ID != lease.ID {
		t.Fatalf("leases: %v, %v", all, err)
	}
	if _, err := s.Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ctx, "a"); err != nil || got.Count != 0 {
		t.Fatalf("get after its lease ended: %v, %v", got, err)
	}
	if _, err := s.Revoke(ctx, lease.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("revoke again: %v", err)
	}
	if _, err := s.KeepAliveOnce(ctx, lease.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("keep alive of no lease: %v", err) // the client makes it of a term of 0
	}
	if info, err := s.TimeToLive(ctx, lease.ID); err != nil || info.TTL != -1 {
		t.Errorf("time to live of no lease: %v, %v", info, err)
	}
}

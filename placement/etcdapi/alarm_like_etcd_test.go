package etcdapi

import (
	"errors"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// Alarms are raised, listed and ended, and refuse what they do in etcd.
func TestLikeEtcdAlarms(t *testing.T) {
	b := newBoth(t)
	alarm := func(action pb.AlarmRequest_AlarmAction, member uint64,
		a pb.AlarmType) *pb.AlarmRequest {
		return &pb.AlarmRequest{Action: action, MemberID: member, Alarm: a}
	}
	const get, raise, end = pb.AlarmRequest_GET, pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE
	work := []proto.Message{
		&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")},
		&pb.RangeRequest{Key: []byte("a"), Serializable: true},
		&pb.PutRequest{Key: []byte("a"), Value: []byte("2"), PrevKv: true},
		&pb.PutRequest{Key: []byte("a"), Lease: 99},
		&pb.DeleteRangeRequest{Key: []byte("none")}, &pb.DeleteRangeRequest{Key: []byte("b")},
		&pb.TxnRequest{}, &pb.TxnRequest{Success: []*pb.RequestOp{putOp("a", "3")}},
		&pb.TxnRequest{Failure: []*pb.RequestOp{putOp("a", "3")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{deleteOp("c", "")}},
		&pb.LeaseGrantRequest{ID: 7, TTL: 600}, &pb.LeaseKeepAliveRequest{ID: 5},
		&pb.LeaseTimeToLiveRequest{ID: 5, Keys: true}, &pb.LeaseLeasesRequest{},
		&pb.LeaseRevokeRequest{ID: 6}, &pb.LeaseRevokeRequest{ID: 1234},
		&pb.CompactionRequest{Revision: 3}, &pb.DefragmentRequest{},
	}
	begin := []proto.Message{&pb.LeaseGrantRequest{ID: 5, TTL: 600},
		&pb.LeaseGrantRequest{ID: 6, TTL: 600}, &pb.PutRequest{Key: []byte("a"), Value: []byte("1")},
		&pb.PutRequest{Key: []byte("b"), Value: []byte("1"), Lease: 5},
		&pb.PutRequest{Key: []byte("c"), Value: []byte("1"), Lease: 6}}
	requests := append([]proto.Message{alarm(get, 0, 0), alarm(end, 1, pb.AlarmType_NOSPACE),
		alarm(raise, 1, pb.AlarmType_NONE), alarm(end, 1, pb.AlarmType_NONE)}, begin...)
	for _, kind := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		requests = append(requests, alarm(raise, 1, kind), alarm(raise, 1, kind),
			alarm(raise, 2, kind), alarm(get, 0, 0), alarm(get, 0, kind), alarm(get, 1, kind),
			alarm(get, 0, 3-kind))
		requests = append(requests, work...)
		requests = append(requests, alarm(end, 1, kind), alarm(end, 1, kind))
		requests = append(requests, work[:4]...)
		requests = append(requests, alarm(end, 2, kind), alarm(get, 0, 0))
		requests = append(requests, work...)
	}
	// Both at a time.
	requests = append(requests, alarm(raise, 1, pb.AlarmType_NOSPACE),
		alarm(raise, 1, pb.AlarmType_CORRUPT), alarm(get, 0, 0))
	requests = append(requests, work...)
	requests = append(requests, alarm(end, 1, pb.AlarmType_CORRUPT))
	requests = append(requests, work...)
	for _, r := range requests {
		b.ask(r)
	}
	b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	for _, e := range []*endpoint{b.etcd, b.ours} {
		s, err := pb.NewMaintenanceClient(e.connection).Status(t.Context(), &pb.StatusRequest{})
		// etcd's spaces differ from build to build.
		if err != nil || len(s.Errors) != 1 ||
			strings.Join(strings.Fields(s.Errors[0]), " ") != "memberID:1 alarm:NOSPACE" {
			t.Errorf("%q, %v", s.GetErrors(), err)
		}
	}
}

// A client that ends all alarms, as `etcdctl alarm disarm` does, can write again.
func TestAlarmDisarm(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	if _, err := pb.NewMaintenanceClient(s.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: 3, Alarm: pb.AlarmType_NOSPACE}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, "k", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a put: %v", err)
	}
	if _, err := s.Grant(ctx, 10); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a lease: %v", err)
	}
	if err := s.services.Healthy(ctx, false, nil); err == nil || err.Error() != "ALARM NOSPACE" {
		t.Errorf("health: %v", err)
	}
	listed, err := s.AlarmList(ctx)
	if err != nil || len(listed.Alarms) != 1 || listed.Alarms[0].MemberID != 3 {
		t.Errorf("%v, %v", listed, err)
	}
	if r, err := s.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil || len(r.Alarms) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := s.Put(ctx, "k", "v"); err != nil {
		t.Error(err)
	}
	if err := s.services.Healthy(ctx, false, nil); err != nil {
		t.Error(err)
	}
}

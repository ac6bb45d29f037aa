package etcdapi

import (
	"context"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// byStream renews leases by a stream, and gives its answers, and its error unless it is its end.
func byStream(t *testing.T, client *clientv3.Client,
	ids []int64) (all []*pb.LeaseKeepAliveResponse, err error) {
	t.Helper()
	stream, err := pb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if stream.Send(&pb.LeaseKeepAliveRequest{ID: id}) != nil {
			break // what is received says why
		}
	}
	_ = stream.CloseSend()
	for {
		r, err := stream.Recv()
		switch {
		case err != nil && err.Error() == "EOF":
			return all, nil
		case err != nil:
			return all, err
		}
		all = append(all, r)
	}
}

// byCall renews leases by one call, and gives what a stream would have answered.
func byCall(t *testing.T, client *clientv3.Client,
	ids []int64) (all []*pb.LeaseKeepAliveResponse, err error) {
	t.Helper()
	answer, err := coordpb.NewRenewalsClient(client.ActiveConnection()).RenewAll(t.Context(),
		&coordpb.RenewAllRequest{Leases: ids})
	if err != nil {
		return nil, err
	}
	h := answer.Header
	for i, term := range answer.Terms {
		all = append(all, &pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{
			ClusterId: h.GetClusterId(), MemberId: h.GetMemberId(), Revision: h.GetRevision(),
			RaftTerm: h.GetRaftTerm()}, ID: ids[i], TTL: term})
	}
	if why := answer.Refusal; why != nil {
		return all, status.Error(codes.Code(why.Code), why.Message)
	}
	return all, nil
}

// same fails the test unless leases are renewed by one call as by a stream.
func same(t *testing.T, client *clientv3.Client, ids []int64) {
	t.Helper()
	want, wantErr := byStream(t, client, ids)
	got, err := byCall(t, client, ids)
	if status.Code(err) != status.Code(wantErr) ||
		status.Convert(err).Message() != status.Convert(wantErr).Message() {
		t.Fatalf("leases %v: %v, by a stream %v", ids, err, wantErr)
	}
	if !slices.EqualFunc(got, want, func(a, b *pb.LeaseKeepAliveResponse) bool {
		return proto.Equal(a, b)
	}) {
		t.Fatalf("leases %v: %v, by a stream %v", ids, got, want)
	}
}

// One call renews leases as a stream does.
func TestRenewAll(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	for id := range int64(10) {
		if _, err := pb.NewLeaseClient(s.ActiveConnection()).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: id + 1, TTL: 60 + id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(ctx, "a", "1"); err != nil {
		t.Fatal(err)
	}
	same(t, s.Client, []int64{1, 2, 3})
	same(t, s.Client, []int64{-1, 3, 3, 99, 1, 0, 10})
	if all, err := byCall(t, s.Client, nil); err != nil || len(all) > 0 {
		t.Errorf("no leases: %v, %v", all, err)
	}
	many := make([]int64, coordpb.MaxRenewed)
	for i := range many {
		many[i] = int64(i % 12)
	}
	same(t, s.Client, many)
	if all, err := byCall(t, s.Client, append(many, 1)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("too many leases: %d, %v", len(all), err)
	}
	s.cluster.learner.Store(true)
	if _, err := byCall(t, s.Client, []int64{1}); err == nil ||
		status.Convert(err).Message() != rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner) {
		t.Errorf("at a learner: %v", err)
	}
}

// counting is a store that counts the leases that are renewed, and fails if that is said.
type counting struct {
	*lone
	renewed []int64
	err     error
}

func (c *counting) RenewAll(ctx context.Context, ids []int64) ([]time.Duration, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.renewed = append(c.renewed, ids...)
	return c.lone.RenewAll(ctx, ids)
}

// A lease that may not be renewed ends what a call renews, as it ends a stream; and it is audited.
func TestRenewAllRefused(t *testing.T) {
	renewals := &counting{}
	g := serveUsers(t, func(c *Config) {
		renewals.lone = c.Store.(*lone)
		c.Store = renewals
	})
	ctx := t.Context()
	root, u := g.as(t, "root", "secret"), g.as(t, "u", "pw")
	for id, key := range map[int64]string{1: "u/1", 2: "u/2", 3: "other"} {
		if _, err := pb.NewLeaseClient(root.ActiveConnection()).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: id, TTL: 60 + id}); err != nil {
			t.Fatal(err)
		}
		if _, err := root.Put(ctx, key, "", clientv3.WithLease(clientv3.LeaseID(id))); err != nil {
			t.Fatal(err)
		}
	}
	// A stream sees the first lease alone, and so the refusal in another pass. It comes to the same.
	for _, ids := range [][]int64{{1, 2, 1}, {1, 2, 3}, {2, 3, 1}, {3, 1}, {1, 3, 3}, {9, 3}} {
		same(t, u, ids)
		same(t, root, ids)
	}
	same(t, g.Client, []int64{1}) // names no user

	g.log.lines(t)
	renewals.renewed = nil
	if all, err := byCall(t, u, []int64{1, 2, 3, 1}); len(all) != 2 ||
		status.Code(err) != codes.PermissionDenied {
		t.Fatalf("%v, %v", all, err)
	}
	if want := []int64{1, 2}; !slices.Equal(renewals.renewed, want) {
		t.Errorf("the leases %v were renewed, want %v", renewals.renewed, want)
	}
	lines := g.log.lines(t)
	if len(lines) != 1 || lines[0]["user"] != "u" || lines[0]["outcome"] != "refused" ||
		lines[0]["method"] != coordpb.Renewals_RenewAll_FullMethodName {
		t.Errorf("audited: %v", lines)
	}
	renewals.err = context.DeadlineExceeded
	same(t, u, []int64{1, 2})
}

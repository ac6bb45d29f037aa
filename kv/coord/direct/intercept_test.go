package direct

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A server that closes may answer that a call was canceled although it has made the call. The etcd
// client must not learn that by a code after which it repeats the call, unless the caller itself
// has given up.
func TestCallsThatTheServerEnds(t *testing.T) {
	calls := New(Config{})
	defer calls.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx       context.Context
		method    string
		got, want codes.Code
	}{
		{t.Context(), pb.KV_Txn_FullMethodName, codes.Canceled, codes.Unavailable},
		{t.Context(), pb.KV_Txn_FullMethodName, codes.DeadlineExceeded, codes.Unavailable},
		{t.Context(), pb.Cluster_MemberAdd_FullMethodName, codes.Canceled, codes.Unavailable},
		{t.Context(), pb.KV_Range_FullMethodName, codes.Canceled, codes.Canceled},
		{t.Context(), pb.KV_Txn_FullMethodName, codes.InvalidArgument, codes.InvalidArgument},
		{t.Context(), pb.KV_Txn_FullMethodName, codes.OK, codes.OK},
		{gone, pb.KV_Txn_FullMethodName, codes.Canceled, codes.Canceled},
	} {
		answers := func(context.Context, string, any, any, *grpc.ClientConn,
			...grpc.CallOption) error {
			return status.Error(c.got, "the call is over")
		}
		err := calls.intercept(c.ctx, c.method, &pb.TxnRequest{}, &pb.TxnResponse{}, nil, answers)
		if status.Code(err) != c.want {
			t.Errorf("%s, answered %v, context %v: %v", c.method, c.got, c.ctx.Err(), err)
		}
	}
}

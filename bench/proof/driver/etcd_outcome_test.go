package driver

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestEtcdUnknown(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {rpctypes.ErrGRPCNoLeader, false}, {rpctypes.ErrNoLeader, false},
		{rpctypes.ErrTooManyRequests, false}, {rpctypes.ErrGRPCRequestTooManyRequests, false},
		{rpctypes.ErrLeaderChanged, false}, {rpctypes.ErrLeaseNotFound, false},
		{rpctypes.ErrCompacted, false}, {rpctypes.ErrDuplicateKey, false},
		{rpctypes.ErrTimeout, true}, {rpctypes.ErrStopped, true}, {rpctypes.ErrGRPCTimeout, true},
		{context.DeadlineExceeded, true}, {context.Canceled, true},
		{status.Error(codes.Unavailable, "connection reset"), true},
		{status.Error(codes.Unavailable, "etcdserver: this server is not a member of the core"),
			false},
		{status.Error(codes.ResourceExhausted, "etcdserver: too large"), false},
		{status.Error(codes.Unknown, "etcdserver: disk"), true}, {errors.New("what"), true},
	} {
		if got := EtcdUnknown(test.err); got != test.want {
			t.Errorf("%v: unknown %v, want %v", test.err, got, test.want)
		}
	}
}

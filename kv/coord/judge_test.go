package coord

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// What was certainly not executed is not unknown, and what may be tried again is not refused for
// good.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		err  error
		want verdict
	}{
		{rpctypes.ErrNoLeader, busy},
		{rpctypes.ErrGRPCNoLeader, busy},
		{rpctypes.ErrLeaderChanged, busy},
		{coordpb.ErrNotSent, busy},
		{rpctypes.ErrTooManyRequests, busy},
		{fail("put", "k", rpctypes.ErrTooManyRequests), busy},
		{fail("put", "k", rpctypes.ErrNoLeader), busy},
		{status.Error(codes.ResourceExhausted, "etcdserver: too many requests: this server has no "+
			"memory for the message of the call"), busy},
		{rpctypes.ErrGRPCNotSupportedForLearner, busy},
		{rpctypes.ErrTimeout, unknown},
		{rpctypes.ErrTimeoutDueToLeaderFail, unknown},
		{rpctypes.ErrTimeoutDueToConnectionLost, unknown},
		{rpctypes.ErrStopped, unknown},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), unknown},
		{context.DeadlineExceeded, unknown},
		{because("its time is over", errUnsent, context.DeadlineExceeded), busy},
		{rpctypes.ErrNoSpace, refused},
		{rpctypes.ErrPermissionDenied, refused},
	} {
		if got := judge(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

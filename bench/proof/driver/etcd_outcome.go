package driver

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcdNothingDone has errors of a server that is not available, but promises that the call had no
// effect and will never have one.
var etcdNothingDone = []error{rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged,
	rpctypes.ErrTooManyRequests}

// EtcdUnknown reports whether a write that ended with this error may have taken effect, like
// Unknown. Every other error promises that the write had no effect and will never have one.
//
//	no leader, leader changed, too many requests     nothing was done
//	a server that is no member of the core           nothing was done
//	what the request itself is refused for: NotFound, nothing was done
//	  InvalidArgument, FailedPrecondition, OutOfRange,
//	  ResourceExhausted, PermissionDenied, Unauthenticated, Unimplemented
//	timed out, stopped, unavailable, cancelled,      unknown
//	  and everything else
func EtcdUnknown(err error) bool {
	if err == nil || noMember(err) {
		return false
	}
	var known rpctypes.EtcdError
	code := status.Code(err)
	switch {
	case errors.As(rpctypes.Error(err), &known):
		for _, nothing := range etcdNothingDone {
			if errors.Is(known, nothing) {
				return false
			}
		}
		code = known.Code()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return true
	}
	switch code {
	case codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange,
		codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return false
	}
	return true
}

// etcdKind returns a short name of an error of etcd's client. The name is empty if the error is no
// error of etcd's client.
func etcdKind(err error) string {
	var known rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &known) {
		return known.Error()
	}
	if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
		return s.Code().String()
	}
	return ""
}

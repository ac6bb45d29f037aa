package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// ErrNotCalled is wrapped by the error of a call that certainly was not made: the server was
// unreachable or overloaded, or does not answer such calls on connections of requests. The caller
// may make the call by gRPC.
var ErrNotCalled = errors.New("rpc: the call was not made")

// ErrCallTooLarge wraps ErrNotCalled for a call whose request is too large for a connection of
// requests.
var ErrCallTooLarge = fmt.Errorf("%w: its request has more than %d bytes", ErrNotCalled,
	wire.MaxCallBytes)

// CallOptions correspond to fields of gRPC's metadata.
type CallOptions struct {
	// Token is the token that Authenticate returned; empty: the call has no user.
	Token string
	// RequireLeader makes the call fail at a server that knows no leader.
	RequireLeader bool
}

// Call calls a method ("/package.Service/Method") of a gRPC service of the node, like
// grpc.ClientConn.Invoke, but over the connection that carries requests. better is the address of a
// server that answers such calls with fewer hops; "" if none is known. Errors have a gRPC status,
// like those of Invoke, or wrap ErrNotCalled. If the context has ended before the call was sent,
// the error wraps ErrNotSent, too.
func (b *BatchConn) Call(ctx context.Context, method string, request, answer proto.Message,
	o CallOptions) (better string, err error) {
	r := &kvpb.Request{Call: &kvpb.Call{Method: method, Token: o.Token,
		RequireLeader: o.RequireLeader}}
	if r.Call.Message, err = proto.Marshal(request); err != nil {
		return "", status.Errorf(codes.Internal, "request of %s: %v", method, err)
	}
	if len(r.Call.Message) > wire.MaxCallBytes {
		return "", ErrCallTooLarge
	}
	if deadline, ok := ctx.Deadline(); ok {
		r.TimeoutMicros = uint64(max(time.Until(deadline).Microseconds(), 1))
	}
	response, err := b.Do(ctx, r)
	if err != nil {
		return "", callError(ctx, err)
	}
	outcome := response.Call
	switch {
	case response.Error.GetCause() == kvpb.ErrorCause_CAUSE_TOO_LARGE:
		return "", status.Error(codes.InvalidArgument, "etcdserver: request is too large: "+
			response.Error.Message)
	case response.Error != nil && response.Error.Code == kvpb.ErrorCode_OVERLOADED:
		// The text begins like etcd's, which clients of etcd recognize.
		return "", status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+
			response.Error.Message)
	case response.Error != nil:
		return "", fmt.Errorf("%w: %s", ErrNotCalled, response.Error.Message)
	case outcome == nil:
		return "", status.Errorf(codes.Internal, "the answer to %s has neither an outcome nor an error",
			method)
	case len(outcome.Status) > 0:
		var failed statuspb.Status
		if err := proto.Unmarshal(outcome.Status, &failed); err != nil {
			return "", status.Errorf(codes.Internal, "status of %s: %v", method, err)
		}
		if failed.Code == int32(codes.OK) {
			return "", status.Errorf(codes.Internal, "%s failed without an error", method)
		}
		return outcome.Better, status.FromProto(&failed).Err()
	}
	if err := proto.Unmarshal(outcome.Message, answer); err != nil {
		return "", status.Errorf(codes.Internal, "answer to %s: %v", method, err)
	}
	return outcome.Better, nil
}

// callError returns the error of a call whose request has no response.
func callError(ctx context.Context, err error) error {
	var broken *ErrStreamBroken
	switch {
	case ctx.Err() != nil && errors.Is(err, ErrNotSent):
		return fmt.Errorf("%w: %w", ErrNotSent, status.FromContextError(ctx.Err()).Err())
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.As(err, &broken) && broken.Sent &&
		status.Convert(broken.Cause).Message() != wire.CallsNotMade:
		return status.Errorf(codes.Unavailable,
			"the connection ended before the answer came; the call may have been made: %v", broken.Cause)
	}
	return fmt.Errorf("%w: %w", ErrNotCalled, err)
}

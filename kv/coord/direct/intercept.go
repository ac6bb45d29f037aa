package direct

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

// direct are the methods that may bypass gRPC.
var direct = map[string]bool{
	pb.KV_Range_FullMethodName:              true,
	pb.KV_Put_FullMethodName:                true,
	pb.KV_DeleteRange_FullMethodName:        true,
	pb.KV_Txn_FullMethodName:                true,
	pb.Lease_LeaseGrant_FullMethodName:      true,
	pb.Lease_LeaseRevoke_FullMethodName:     true,
	pb.Lease_LeaseTimeToLive_FullMethodName: true,
}

// DialOptions returns options for the etcd client's configuration. Calls past gRPC carry only the
// token of the Config, or the token of the client's user. They lack credentials that other options
// add to all calls (grpc.WithPerRPCCredentials).
func (c *Calls) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.intercept),
		grpc.WithChainStreamInterceptor(c.interceptStream)}
}

// intercept implements grpc.UnaryClientInterceptor.
func (c *Calls) intercept(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := c.attempt(ctx, method, request, answer, conn, invoke, options...)
	note(ctx, err)
	return unrepeated(ctx, method, err)
}

// unrepeated returns the error of a call so that the etcd client does not repeat a call that may
// have changed something. The etcd client repeats every call whose error says that a context has
// ended, unless its own has. But the context of a call ends at a server that closes, too, when the
// call may have been made.
func unrepeated(ctx context.Context, method string, err error) error {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		if method != pb.KV_Range_FullMethodName && ctx.Err() == nil {
			return status.Errorf(codes.Unavailable,
				"the server ended the call, which may have been made: %s", status.Convert(err).Message())
		}
	}
	return err
}

// attempt makes a call once, past gRPC or by gRPC.
func (c *Calls) attempt(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		err := invoke(ctx, method, request, answer, conn, options...)
		c.authenticated(request, answer, err)
		return err
	}
	q, isMessage := request.(proto.Message)
	a, takesMessage := answer.(proto.Message)
	if !direct[method] || !isMessage || !takesMessage {
		return invoke(ctx, method, request, answer, conn, options...)
	}
	o, ok := c.callOptions(ctx, options)
	if !ok {
		c.counters.grpc.Add(1)
		return invoke(ctx, method, request, answer, conn, options...)
	}
	s := c.current.Load()
	if s == nil {
		c.look()
		c.counters.grpc.Add(1)
		return invoke(ctx, method, request, answer, conn, options...)
	}
	err := c.call(ctx, s, method, q, a, o)
	if errors.Is(err, client.ErrNotCalled) {
		c.counters.grpc.Add(1)
		return invoke(ctx, method, request, answer, conn, options...)
	}
	c.counters.direct.Add(1)
	return err
}

// call calls the server.
func (c *Calls) call(ctx context.Context, s *server, method string, q, a proto.Message,
	o client.CallOptions) error {
	began := time.Now()
	better, err := s.conn().Call(ctx, method, q, a, o)
	switch {
	case err == nil:
	case errors.Is(err, client.ErrCallTooLarge):
		return err
	case errors.Is(err, client.ErrNotCalled), status.Code(err) == codes.Unavailable,
		errors.Is(err, rpctypes.ErrGRPCNotSupportedForLearner):
		// The server's connection has ended, or the server cannot serve now, or it no longer has a
		// part of the store. A server without its part refuses writes with this error, and etcd's
		// client repeats them.
		c.leave(s, false)
		return err
	case status.Code(err) == codes.DeadlineExceeded && time.Since(began) >= slowAfter:
		// If a leader is cut off from the other members, calls wait there longer than most callers do.
		c.leave(s, true)
		return err
	}
	if better != "" && better != s.address {
		c.lookBetter(better)
	}
	return err
}

// leave stops calling a server that does not serve, and allows a new search soon, even after many
// failed searches. If slow is set, other servers are preferred for slowFor.
func (c *Calls) leave(s *server, slow bool) {
	left := c.current.CompareAndSwap(s, nil)
	c.mu.Lock()
	if slow {
		c.mu.addresses.noteSlow(s.address)
	}
	if left {
		c.mu.failures, c.mu.until = 0, c.mu.settled.Add(lookFirst)
	}
	c.mu.Unlock()
	if left {
		c.logger.Info("coordination is called by gRPC", "left", s.address)
	}
	if c.current.Load() == nil {
		c.look()
	}
}

package direct

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

const (
	// openTimeout is how long the opening of a stream of renewals waits for a search under way: a
	// stream opened by gRPC stays on gRPC for its whole life.
	openTimeout = 500 * time.Millisecond
	// askAgain is the time for which a server that does not renew leases without gRPC is not asked
	// again. A server of a newer version may take over its address.
	askAgain = time.Minute
)

// renewing says whether a server renews leases without gRPC, if known.
type renewing struct {
	mu struct {
		sync.Mutex
		yes bool
		// refused is the time of the server's refusal; zero: none.
		refused time.Time
	}
}

// known returns the answer of the server. If both results are false, the server has to be asked.
func (r *renewing) known() (yes, no bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.yes, !r.mu.refused.IsZero() && time.Since(r.mu.refused) < askAgain
}

// note records the answer of the server.
func (r *renewing) note(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.yes, r.mu.refused = yes, time.Time{}
	if !yes {
		r.mu.refused = time.Now()
	}
}

// interceptStream implements grpc.StreamClientInterceptor.
func (c *Calls) interceptStream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn,
	method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == pb.Lease_LeaseKeepAlive_FullMethodName && ctx.Err() == nil {
		if stream := c.openRenewals(ctx, options); stream != nil {
			return stream, nil
		}
	}
	return open(ctx, d, conn, method, options...)
}

// openRenewals opens a stream that bypasses gRPC. It returns nil if the stream has to use gRPC.
func (c *Calls) openRenewals(ctx context.Context, options []grpc.CallOption) *renewalStream {
	o, ok := c.callOptions(ctx, options)
	if !ok {
		return nil
	}
	s := c.awaitServer(ctx)
	if s == nil || !c.renewsAt(ctx, s, o) {
		return nil
	}
	return c.newRenewalStream(ctx, s)
}

// awaitServer returns the current server, or the server found within openTimeout, or nil.
func (c *Calls) awaitServer(ctx context.Context) *server {
	if s := c.current.Load(); s != nil {
		return s
	}
	c.look()
	c.mu.Lock()
	searched := c.mu.searched
	c.mu.Unlock()
	if searched != nil {
		timeout := time.NewTimer(openTimeout)
		defer timeout.Stop()
		select {
		case <-searched:
		case <-timeout.C:
		case <-ctx.Done():
		}
	}
	return c.current.Load()
}

// renewsAt reports whether a server renews leases without gRPC, and asks it if that is not known.
// After an error the stream uses gRPC, where it gets the same error.
func (c *Calls) renewsAt(ctx context.Context, s *server, o client.CallOptions) bool {
	if yes, no := s.renewing.known(); yes || no {
		return yes
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := s.conn().Call(ctx, coordpb.Renewals_RenewAll_FullMethodName,
		&coordpb.RenewAllRequest{}, &coordpb.RenewAllResponse{}, o)
	switch {
	case err == nil:
		s.renewing.note(true)
	case notServed(err):
		s.renewing.note(false)
	}
	return err == nil
}

// notServed reports whether a call failed because the server does not know the call.
func notServed(err error) bool {
	var broken *client.ErrStreamBroken
	if errors.Is(err, client.ErrNotSent) || errors.Is(err, client.ErrClosed) || errors.As(err,
		&broken) {
		return false
	}
	return errors.Is(err, client.ErrNotCalled) || status.Code(err) == codes.Unimplemented
}

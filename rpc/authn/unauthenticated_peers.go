package authn

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// unauthenticatedPeers are what those have open that were taken for servers without a proof, so
// that it ends when the policy closes. The zero value is that of a policy that is not closed.
type unauthenticatedPeers struct {
	closed atomic.Bool
	mu     struct {
		sync.Mutex
		last uint64
		ends map[uint64]func()
	}
}

// errClosed is what unauthenticated peers hear when the policy closes.
var errClosed = status.Error(codes.PermissionDenied, "this is for servers of the cluster that "+
	"prove to be some, since authentication is enabled")

// Close says whether Open counts no more. When it begins to, what they have open ends. A
// policy that is not Open does not change by it.
func (p *PeerPolicy) Close(closed bool) {
	s := &p.unauthenticated
	s.closed.Store(closed)
	if !closed {
		return
	}
	s.mu.Lock()
	ends := s.mu.ends
	s.mu.ends = nil
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// enter keeps what ends an unauthenticated peer's connection or stream, until leave is called. It
// is called before the policy is asked whether it is open, so that none is missed.
func (s *unauthenticatedPeers) enter(end func()) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ends == nil {
		s.mu.ends = map[uint64]func(){}
	}
	s.mu.last++
	id := s.mu.last
	s.mu.ends[id] = end
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.ends, id)
	}
}

// admit has a stream of an unauthenticated peer end when the policy closes. done is called when it
// has ended.
func (s *unauthenticatedPeers) admit(
	p *PeerPolicy, stream grpc.ServerStream, method string,
) (_ grpc.ServerStream, done func()) {
	if !p.Open || !ForServers(method) || p.Proved(stream.Context()) == nil {
		return stream, func() {}
	}
	ctx, cancel := context.WithCancel(stream.Context())
	leave := s.enter(cancel)
	if s.closed.Load() {
		cancel()
	}
	return unauthenticatedStream{stream, ctx}, func() {
		leave()
		cancel()
	}
}

// unauthenticatedStream is a stream whose context ends when the policy closes, and on which nothing
// comes or goes any more then.
type unauthenticatedStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s unauthenticatedStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s unauthenticatedStream) SendMsg(m any) error {
	if s.ctx.Err() != nil && s.ServerStream.Context().Err() == nil {
		return errClosed
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream.
func (s unauthenticatedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// AdmitConn has the connection of an unauthenticated peer end when the policy closes. done is
// called when it has ended.
func (p *PeerPolicy) AdmitConn(c *transport.Conn) (done func(), err error) {
	if p == nil || !p.Open || p.checkProof(c.TLS(), c.Proved()) == nil {
		return func() {}, p.ofConn(c)
	}
	leave := p.unauthenticated.enter(func() { c.Interrupt(errClosed) })
	if err := p.ofConn(c); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

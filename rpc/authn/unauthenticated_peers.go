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

// unauthenticatedPeers holds the open connections and streams of those that were accepted as
// servers without proof, so that they end when the policy closes. The zero value belongs to a
// policy that is not closed.
type unauthenticatedPeers struct {
	closed atomic.Bool
	mu     struct {
		sync.Mutex
		last uint64
		ends map[uint64]func()
	}
}

// errClosed ends them when the policy closes.
var errClosed = status.Error(codes.PermissionDenied, "this is for servers of the cluster that "+
	"prove to be some, since authentication is enabled")

// Close sets whether the policy is closed, so that Open does not count any more. Closing it ends
// all connections and streams of unauthenticated peers. A policy that is not Open is not affected.
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

// enter registers a function that ends an unauthenticated peer's connection or stream, until leave
// is called. It is called before the check whether the policy is open, so that closing misses none.
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

// admit ends a stream of an unauthenticated peer when the policy closes. done is called when the
// stream has ended.
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

// unauthenticatedStream is a stream whose context ends when the policy closes. Afterwards it
// neither sends nor receives.
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

// AdmitConn ends the connection of an unauthenticated peer when the policy closes. done is called
// when the connection has ended.
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

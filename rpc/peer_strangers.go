package rpc

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// strangers are what those have open that were taken for servers without a proof, so that it ends
// when the policy closes. The zero value is that of a policy that is not closed.
type strangers struct {
	closed atomic.Bool
	mu     struct {
		sync.Mutex
		last uint64
		ends map[uint64]func()
	}
}

// errClosed is what strangers hear.
var errClosed = status.Error(codes.PermissionDenied, "this is for servers of the cluster that "+
	"prove to be some, since authentication is enabled")

// Close says whether Open counts no more. When it begins to, what strangers have open ends. A
// policy that is not Open does not change by it.
func (p *PeerPolicy) Close(closed bool) {
	s := &p.strangers
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

// enter keeps what ends a stranger's connection or stream, until leave is called. It is called
// before the policy is asked whether it is open, so that no stranger is missed.
func (s *strangers) enter(end func()) (leave func()) {
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

// admit has a stream of a stranger end when the policy closes. done is called when it has ended.
func (s *strangers) admit(
	p *PeerPolicy, stream grpc.ServerStream, method string,
) (_ grpc.ServerStream, done func()) {
	if !p.Open || !forServers(method) || p.Proved(stream.Context()) == nil {
		return stream, func() {}
	}
	ctx, cancel := context.WithCancel(stream.Context())
	leave := s.enter(cancel)
	if s.closed.Load() {
		cancel()
	}
	return strangerStream{stream, ctx}, func() {
		leave()
		cancel()
	}
}

// strangerStream is a stream whose context ends when the policy closes, and on which nothing comes
// or goes any more then.
type strangerStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s strangerStream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s strangerStream) SendMsg(m any) error {
	if s.ctx.Err() != nil && s.ServerStream.Context().Err() == nil {
		return errClosed
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream.
func (s strangerStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// admitConn has a stranger's connection end when the policy closes. done is called when it has
// ended.
func (p *PeerPolicy) admitConn(c *transport.Conn) (done func(), err error) {
	if p == nil || !p.Open || p.judgeProof(c.TLS(), c.Proved()) == nil {
		return func() {}, p.ofConn(c)
	}
	leave := p.strangers.enter(func() { c.Interrupt(errClosed) })
	if err := p.ofConn(c); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

package direct

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

const (
	// renewTimeout is how long a server has to renew the leases of one call. One that does not serve
	// any more ends the stream within it.
	renewTimeout = 5 * time.Second
	// renewalsLinger is how long a stream makes no call after one for several leases, but fewer than
	// a call renews, so that those that come in a burst share calls. One that comes alone never
	// waits.
	renewalsLinger = 2 * time.Millisecond
)

// renewalStream is a stream of LeaseKeepAlive that is no stream of gRPC: one goroutine gathers the
// renewals that were sent, has the server renew their leases with one call after the other, and
// hands the answers over in the order of the requests.
//
// What waits is bounded on both sides: by requests, and by the answers of one call behind those
// that are being received. When both are full, SendMsg waits.
type renewalStream struct {
	calls  *Calls
	server *server
	// opened is the context that the stream was opened with. ctx is made of it, and ends with the
	// stream.
	opened context.Context
	ctx    context.Context
	cancel context.CancelFunc

	requests chan int64
	// closing is closed by CloseSend, once.
	closing chan struct{}
	closed  sync.Once
	answers chan *renewed
	// ended is closed when the goroutine has ended; err is why, and is set before.
	ended chan struct{}
	err   error
	// receiving are the answers that RecvMsg gives.
	receiving *renewed
}

var _ grpc.ClientStream = (*renewalStream)(nil)

// renewed are leases of which the first have the terms of an answer.
type renewed struct {
	leases []int64
	answer *coordpb.RenewAllResponse
	// given is how many of the terms were.
	given int
}

// newRenewalStream opens a stream at a server; nil after Close.
func (c *Calls) newRenewalStream(ctx context.Context, s *server) *renewalStream {
	r := &renewalStream{calls: c, server: s, opened: ctx,
		requests: make(chan int64, coordpb.MaxRenewed), closing: make(chan struct{}),
		answers: make(chan *renewed, 1), ended: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		r.cancel()
		return nil
	}
	c.running.Go(r.run)
	return r
}

// run is the stream's goroutine. It ends with the context that the stream was opened with, and with
// the Calls.
func (r *renewalStream) run() {
	stop := context.AfterFunc(r.calls.ctx, r.cancel)
	r.err = r.renewAll()
	stop()
	r.cancel()
	close(r.ended)
}

// renewAll returns why the stream ends.
func (r *renewalStream) renewAll() error {
	linger := time.NewTimer(renewalsLinger)
	defer linger.Stop()
	for {
		leases, err := r.gather()
		if err != nil {
			return err
		}
		answer, err := r.renew(leases)
		if err != nil {
			return err
		}
		if len(answer.Terms) > 0 {
			select {
			case r.answers <- &renewed{leases: leases, answer: answer}:
			case <-r.ctx.Done():
				return r.contextError()
			}
		}
		switch {
		case answer.Refusal != nil:
			return status.Error(codes.Code(answer.Refusal.Code), answer.Refusal.Message)
		case len(leases) > 1 && len(leases) < coordpb.MaxRenewed:
			linger.Reset(renewalsLinger)
			select {
			case <-linger.C:
			case <-r.ctx.Done():
				return r.contextError()
			}
		}
	}
}

// gather waits for a renewal, and takes those that are there by then. io.EOF: none comes any more.
func (r *renewalStream) gather() (leases []int64, err error) {
	select {
	case lease := <-r.requests:
		leases = append(leases, lease)
	case <-r.closing: // what was sent before is in requests
	case <-r.ctx.Done():
		return nil, r.contextError()
	}
	for len(leases) < coordpb.MaxRenewed {
		select {
		case lease := <-r.requests:
			leases = append(leases, lease)
			continue
		default:
		}
		break
	}
	if len(leases) == 0 {
		return nil, io.EOF
	}
	return leases, nil
}

// renew has the server renew leases. Without an error there is a term for each, or a refusal behind
// the last that there is.
//
// The call does not demand a leader, whatever the stream does: it waits for one. A stream of gRPC
// that demands one outlives an election too. One that ends for want of a leader has etcd's client
// give up the leases whose renewal demands one.
func (r *renewalStream) renew(leases []int64) (*coordpb.RenewAllResponse, error) {
	ctx, cancel := context.WithTimeout(r.ctx, renewTimeout)
	defer cancel()
	answer := &coordpb.RenewAllResponse{}
	err := r.calls.call(ctx, r.server, coordpb.Renewals_RenewAll_FullMethodName,
		&coordpb.RenewAllRequest{Leases: leases}, answer,
		client.CallOptions{Token: r.calls.shownToken()})
	switch {
	case err == nil:
	case r.ctx.Err() != nil:
		return nil, r.contextError()
	case notServed(err):
		r.server.renewing.note(false)
		return nil, status.Errorf(codes.Unavailable, "the server at %s renews leases by gRPC only: %v",
			r.server.address, err)
	case errors.Is(err, client.ErrNotCalled):
		return nil, status.Errorf(codes.Unavailable, "the server at %s was not reached to renew "+
			"leases: %v", r.server.address, err)
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, status.Errorf(codes.Unavailable, "the server at %s did not renew %d leases within "+
			"%s", r.server.address, len(leases), renewTimeout)
	default:
		return nil, err
	}
	if n := len(answer.Terms); n > len(leases) || n < len(leases) && answer.Refusal == nil {
		return nil, status.Errorf(codes.Internal, "the server at %s has answered %d terms of %d leases",
			r.server.address, n, len(leases))
	}
	if why := answer.Refusal; why != nil && codes.Code(why.Code) == codes.OK {
		return nil, status.Errorf(codes.Internal, "the server at %s has refused to renew a lease "+
			"without saying why", r.server.address)
	}
	return answer, nil
}

// contextError is the error of a stream whose context has ended.
func (r *renewalStream) contextError() error {
	if err := r.opened.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, "calls past gRPC were closed")
}

// Header implements grpc.ClientStream: there is none.
func (r *renewalStream) Header() (metadata.MD, error) { return metadata.MD{}, nil }

// Trailer implements grpc.ClientStream: there is none.
func (r *renewalStream) Trailer() metadata.MD { return metadata.MD{} }

// CloseSend implements grpc.ClientStream. What was sent before is answered.
func (r *renewalStream) CloseSend() error {
	r.closed.Do(func() { close(r.closing) })
	return nil
}

// Context implements grpc.ClientStream. It ends with the stream.
func (r *renewalStream) Context() context.Context { return r.ctx }

// SendMsg implements grpc.ClientStream. It waits while the stream holds as many renewals as a call
// has room for. io.EOF: the stream has ended; RecvMsg says why.
func (r *renewalStream) SendMsg(m any) error {
	request, ok := m.(*pb.LeaseKeepAliveRequest)
	if !ok {
		return status.Errorf(codes.Internal, "a stream of renewals sends no %T", m)
	}
	select {
	case <-r.closing:
		return status.Error(codes.Internal, "SendMsg called after CloseSend")
	case <-r.ctx.Done():
		return io.EOF
	default:
	}
	select {
	case r.requests <- request.ID:
		return nil
	case <-r.ctx.Done():
		return io.EOF
	}
}

// RecvMsg implements grpc.ClientStream.
func (r *renewalStream) RecvMsg(m any) error {
	response, ok := m.(*pb.LeaseKeepAliveResponse)
	if !ok {
		return status.Errorf(codes.Internal, "a stream of renewals receives no %T", m)
	}
	for r.receiving == nil {
		select {
		case r.receiving = <-r.answers:
		case <-r.ended:
			if len(r.answers) == 0 {
				return r.err
			}
		}
	}
	of := r.receiving
	header := of.answer.GetHeader()
	response.Header = &pb.ResponseHeader{ClusterId: header.GetClusterId(),
		MemberId: header.GetMemberId(), Revision: header.GetRevision(), RaftTerm: header.GetRaftTerm()}
	response.ID, response.TTL = of.leases[of.given], of.answer.Terms[of.given]
	if of.given++; of.given == len(of.answer.Terms) {
		r.receiving = nil
	}
	return nil
}

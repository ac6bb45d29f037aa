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
	// renewTimeout bounds the time of one renewal call. If the server no longer serves, the stream
	// ends within that time.
	renewTimeout = 5 * time.Second
	// renewalsLinger is the time for which a stream waits after a call for several leases, unless the
	// call had the maximum number of leases, so that renewals of a burst share calls. A single renewal
	// never waits.
	renewalsLinger = 2 * time.Millisecond
)

// renewalStream is a stream of LeaseKeepAlive without a gRPC stream: one goroutine collects the
// sent renewals, makes the server renew their leases with one call after the other, and returns the
// answers in the order of the requests.
//
// Both queues are bounded: the requests, and the answers of one call behind the answers being
// received. When both are full, SendMsg waits.
type renewalStream struct {
	calls  *Calls
	server *server
	// opened is the context with which the stream was opened. ctx is derived from it, and ends with
	// the stream.
	opened context.Context
	ctx    context.Context
	cancel context.CancelFunc

	requests chan int64
	// closing is closed by CloseSend, once.
	closing chan struct{}
	closed  sync.Once
	answers chan *renewed
	// ended is closed when the goroutine has ended. err is the reason, and is set before ended is
	// closed.
	ended chan struct{}
	err   error
	// receiving has the answers that RecvMsg returns next.
	receiving *renewed
}

var _ grpc.ClientStream = (*renewalStream)(nil)

// renewed has leases. The first of them have their terms from an answer.
type renewed struct {
	leases []int64
	answer *coordpb.RenewAllResponse
	// given is the number of terms already returned.
	given int
}

// newRenewalStream opens a stream at a server. It returns nil after Close.
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

// gather waits for a renewal, and takes all that are there then. It returns io.EOF if no more will
// come.
func (r *renewalStream) gather() (leases []int64, err error) {
	select {
	case lease := <-r.requests:
		leases = append(leases, lease)
	case <-r.closing: // renewals sent before CloseSend are in requests
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

// renew makes the server renew leases. Without an error the answer has a term for each lease, or
// fewer terms and a refusal for the next lease.
//
// The call does not require a leader, even if the stream does: it waits for one. A gRPC stream that
// requires a leader also survives an election; if it ended because there is no leader, etcd's
// client would give up the leases of the renewals that require one.
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

// Header implements grpc.ClientStream; it is always empty.
func (r *renewalStream) Header() (metadata.MD, error) { return metadata.MD{}, nil }

// Trailer implements grpc.ClientStream; it is always empty.
func (r *renewalStream) Trailer() metadata.MD { return metadata.MD{} }

// CloseSend implements grpc.ClientStream. Renewals sent before are answered.
func (r *renewalStream) CloseSend() error {
	r.closed.Do(func() { close(r.closing) })
	return nil
}

// Context implements grpc.ClientStream. It ends with the stream.
func (r *renewalStream) Context() context.Context { return r.ctx }

// SendMsg implements grpc.ClientStream. It waits while the stream holds as many renewals as fit
// into one call. It returns io.EOF if the stream has ended; RecvMsg returns the reason.
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

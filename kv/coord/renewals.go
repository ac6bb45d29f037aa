package coord

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// All sessions of a client send their renewals on one stream: a server allows a limited number of
// streams on a connection, and other calls need some of them. The etcd client could also share one
// stream, but reports neither when it has sent a renewal nor why the stream ends.

// renewing has the renewal stream of a client. The stream exists while the client has sessions.
type renewing struct {
	mu struct {
		sync.Mutex
		sessions int
		current  *renewals
		closed   bool
	}
}

// join returns the renewals object that a session uses until it leaves. It returns nil if the
// client is closed.
func (r *renewing) join(c *Client) *renewals {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return nil
	}
	if r.mu.sessions++; r.mu.sessions == 1 {
		r.mu.current = newRenewals(c)
	}
	return r.mu.current
}

// leave ends the renewals object, and waits for its end, if this was the last session.
func (r *renewing) leave(stream *renewals) {
	r.mu.Lock()
	r.mu.sessions--
	last := r.mu.sessions == 0
	if last {
		r.mu.current = nil
	}
	r.mu.Unlock()
	if last {
		stream.close()
	}
}

// close ends the stream, and with it the sessions.
func (r *renewing) close() {
	r.mu.Lock()
	r.mu.closed = true
	stream := r.mu.current
	r.mu.Unlock()
	if stream != nil {
		stream.close()
	}
}

// renewals sends the renewals of all sessions of a client on one stream. It opens the stream when
// there is a renewal to send, and opens it again after a failure. A session has one unanswered
// renewal at a time, which limits the size of the queues.
type renewals struct {
	client   *Client
	requests chan *renewal
	cancel   context.CancelFunc
	// ended is closed when the goroutine has ended.
	ended chan struct{}
}

// renewal is one request to renew a lease.
type renewal struct {
	lease clientv3.LeaseID
	// patience is the time for which a server may be silent while this renewal waits.
	patience time.Duration
	// sent is the time at which the renewal was sent, by the client's clock; 0 before that.
	sent atomic.Int64
	// result has capacity for one value, so that sending the result does not block.
	result chan renewed
}

type renewed struct {
	ttl time.Duration
	err error
}

func newRenewals(c *Client) *renewals {
	ctx, cancel := context.WithCancel(context.Background())
	r := &renewals{client: c, requests: make(chan *renewal), cancel: cancel,
		ended: make(chan struct{})}
	go r.run(ctx)
	return r
}

func (r *renewals) close() {
	r.cancel()
	<-r.ended
}

// renew renews a lease. It returns the time at which the request was sent, and the new time to
// live, which is 0 if the lease is gone. It fails when the stream fails. The caller can then try
// again.
func (r *renewals) renew(ctx context.Context, lease clientv3.LeaseID,
	patience time.Duration) (sent int64, ttl time.Duration, err error) {
	q := &renewal{lease: lease, patience: patience, result: make(chan renewed, 1)}
	select {
	case r.requests <- q:
	case <-r.ended:
		return 0, 0, because("the client is closed", ErrClosed)
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
	select {
	case result := <-q.result:
		return q.sent.Load(), result.ttl, result.err
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
}

// run opens one stream after the other.
func (r *renewals) run(ctx context.Context) {
	defer close(r.ended)
	for {
		select {
		case first := <-r.requests:
			newRenewalStream(r, first).run(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// renewalStream is one stream to one server. One goroutine does all the work except sending and
// receiving.
type renewalStream struct {
	renewals *renewals
	outgoing chan *renewal
	answers  chan *pb.LeaseKeepAliveResponse
	failed   chan error
	running  sync.WaitGroup

	// queue has the renewals to be sent. pending has all unanswered renewals, including those in
	// queue. A session sends its next renewal after the answer, or on another stream. So there is at
	// most one renewal for each lease, and the next answer for a lease belongs to that renewal.
	queue   []*renewal
	pending map[clientv3.LeaseID]*renewal
	// patience is the smallest patience of the renewals on this stream. If there is no answer for that
	// long while a renewal waits, the stream is closed. The limit applies to the next answer of any
	// renewal: under load all answers may take longer.
	patience time.Duration
	silence  *time.Timer
}

func newRenewalStream(r *renewals, first *renewal) *renewalStream {
	s := &renewalStream{renewals: r, outgoing: make(chan *renewal),
		answers: make(chan *pb.LeaseKeepAliveResponse), failed: make(chan error, 2),
		pending:  make(map[clientv3.LeaseID]*renewal),
		patience: first.patience, silence: time.NewTimer(first.patience)}
	s.add(first)
	return s
}

// run returns when the stream has ended. Renewals without an answer have failed then.
func (s *renewalStream) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	s.running.Go(func() { s.send(ctx) })
	err := s.exchange(ctx)
	s.silence.Stop()
	cancel()
	s.running.Wait()
	for _, q := range s.pending {
		q.result <- renewed{err: err}
	}
}

// exchange returns why the stream has ended.
func (s *renewalStream) exchange(ctx context.Context) error {
	for {
		var outgoing chan *renewal
		var next *renewal
		if len(s.queue) > 0 {
			outgoing, next = s.outgoing, s.queue[0]
		}
		select {
		case q := <-s.renewals.requests:
			s.add(q)
		case outgoing <- next:
			s.queue = s.queue[1:]
		case answer := <-s.answers:
			s.answered(answer)
		case err := <-s.failed:
			return rpctypes.Error(err)
		case <-s.silence.C:
			s.renewals.client.unreachable()
			return context.DeadlineExceeded
		case <-ctx.Done():
			return because("the client is closed", ErrClosed)
		}
	}
}

func (s *renewalStream) add(q *renewal) {
	if len(s.pending) == 0 || q.patience < s.patience {
		s.patience = min(s.patience, q.patience)
		s.silence.Reset(s.patience)
	}
	s.pending[q.lease] = q
	s.queue = append(s.queue, q)
}

func (s *renewalStream) answered(answer *pb.LeaseKeepAliveResponse) {
	lease := clientv3.LeaseID(answer.ID)
	q := s.pending[lease]
	if q == nil || q.sent.Load() == 0 {
		return // an answer that was not requested
	}
	delete(s.pending, lease)
	q.result <- renewed{ttl: time.Duration(answer.TTL) * time.Second}
	if len(s.pending) > 0 {
		s.silence.Reset(s.patience)
	} else {
		s.silence.Stop()
	}
}

// send is the goroutine that opens the stream and sends.
func (s *renewalStream) send(ctx context.Context) {
	c := s.renewals.client
	stream, err := pb.NewLeaseClient(c.etcd.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		s.failed <- err
		return
	}
	s.running.Go(func() { s.receive(ctx, stream) })
	for {
		select {
		case q := <-s.outgoing:
			// The time is taken before Send. Send may wait, and may return before the request is sent
			// (package direct collects requests). The service renews the lease later than this time, so a
			// session that counts from here never lives longer than its lease.
			q.sent.Store(c.clock())
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(q.lease)}) != nil {
				return // the receiver reports the error
			}
		case <-ctx.Done():
			return
		}
	}
}

// receive is the goroutine that passes on the answers.
func (s *renewalStream) receive(ctx context.Context, stream pb.Lease_LeaseKeepAliveClient) {
	for {
		answer, err := stream.Recv()
		if err != nil {
			s.failed <- err
			return
		}
		select {
		case s.answers <- answer:
		case <-ctx.Done():
			return
		}
	}
}

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
// streams on a connection, and other calls need some of them. The client of etcd would share one
// by itself, but tells neither when it has sent a renewal nor why it ends.

// renewing is the renewal stream of a client. It is there while the client has sessions.
type renewing struct {
	mu struct {
		sync.Mutex
		sessions int
		current  *renewals
		closed   bool
	}
}

// join returns what a session sends its renewals to, until it leaves; nil if the client is closed.
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

// leave ends what join returned, and waits for that, if this was the last session.
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

// renewals sends the renewals of all sessions of a client on one stream, which it opens when there
// is something to send, and again after a failure. A session has one renewal on its way at a time,
// which bounds what waits here.
type renewals struct {
	client   *Client
	requests chan *renewal
	cancel   context.CancelFunc
	// ended is closed when the goroutine has ended.
	ended chan struct{}
}

// renewal is one request.
type renewal struct {
	lease clientv3.LeaseID
	// patience is how long a server may be silent while this renewal waits.
	patience time.Duration
	// sent is the time at which the renewal was sent, by the client's clock; 0 before that.
	sent atomic.Int64
	// result takes one value without blocking.
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

// renew renews a lease, and returns when the request was sent, and the new time to live; 0 if the
// lease is gone. It fails when the stream does, so that it may be tried again.
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

// run uses one stream after the other.
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

// renewalStream is one stream to one server. One goroutine does all but sending and receiving.
type renewalStream struct {
	renewals *renewals
	outgoing chan *renewal
	answers  chan *pb.LeaseKeepAliveResponse
	failed   chan error
	running  sync.WaitGroup

	// queue are the renewals to be sent, pending all unanswered ones, including queue. A session
	// sends its next renewal after the answer, or on another stream. So there is at most one
	// renewal for each lease, and the next answer for a lease belongs to it.
	queue   []*renewal
	pending map[clientv3.LeaseID]*renewal
	// patience is the smallest patience of the renewals on this stream. If there is no answer for
	// that long while a renewal waits, the stream is closed. The bound is for the next answer only:
	// under load all answers may take longer.
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

// run ends with the stream; renewals without an answer have failed then.
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

// exchange returns why the stream is no more.
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
		return // it was not asked for
	}
	delete(s.pending, lease)
	q.result <- renewed{ttl: time.Duration(answer.TTL) * time.Second}
	if len(s.pending) > 0 {
		s.silence.Reset(s.patience)
	} else {
		s.silence.Stop()
	}
}

// send opens the stream, and sends. It is a goroutine of the stream.
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
			// Before Send, which may wait, and may return while the request waits to leave (package
			// direct gathers requests). The service can only renew the lease later than this, so a
			// session that counts from here never lives for longer than its lease.
			q.sent.Store(c.clock())
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(q.lease)}) != nil {
				return // what is received says why
			}
		case <-ctx.Done():
			return
		}
	}
}

// receive passes answers on. It is a goroutine of the stream.
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

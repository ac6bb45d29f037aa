package peer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// openTimeout bounds one attempt to open a stream to a peer. Meanwhile messages are queued.
	openTimeout = 2 * time.Second
	// After a failed attempt a link drops what it is given for a while: reopenBase, doubled with
	// each failure in a row, at most reopenCap; each with ±25 % of jitter.
	reopenBase = 20 * time.Millisecond
	reopenCap  = time.Second
	// missingAfter is for how long a peer may be out of reach before the log says so: while servers
	// start and restart it is normal.
	missingAfter = 10 * time.Second
	// unacknowledgedLimit is how long bytes that are written to a peer may go unacknowledged by its
	// kernel.
	unacknowledgedLimit = 2 * time.Second
)

// The field numbers and wire types of what an outbox holds.
const (
	tagMessages = 1<<3 | 2 // MessageBatch.messages
	tagPing     = 2<<3 | 2 // MessageBatch.ping
)

// link is this host's sending side to one host, in one class of traffic. It outlives its streams.
type link struct {
	transport *Transport
	host      uint64
	class     Class
	counters  *linkCounters

	mu struct {
		sync.Mutex
		// stream is nil while there is none: until the first message, and after a failure.
		stream *stream
		// backoff is after attempts that failed in a row.
		backoff client.Backoff
		// since is when the first of those failures was; missing: the log has been told.
		since   time.Time
		missing bool
		// reported: HandleUnreachable was told about this backoff.
		reported bool
	}
}

// stream is one stream of messages to a peer, from opening to failure.
type stream struct {
	link *link
	out  *outbox.Outbox
	// lastSend is guarded by out.mu, and so is counted: how many bytes of the transport's queued are
	// this stream's.
	lastSend time.Time
	counted  int64
}

// countLocked counts what waits to be sent.
func (s *stream) countLocked() {
	now := int64(s.out.PendingLocked())
	s.link.transport.queued.Add(now - s.counted)
	s.counted = now
}

// open gives the current stream, and begins a new one if there is none and it is time. nil: drop.
func (l *link) open() *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.stream != nil {
		return l.mu.stream
	}
	if l.mu.backoff.Lasts(time.Now()) {
		if !l.mu.reported {
			l.mu.reported = true
			l.transport.unreachable.report(l.host)
		}
		return nil
	}
	if !l.transport.enter() {
		return nil
	}
	s := &stream{link: l}
	s.out = outbox.New(s.countLocked)
	l.mu.stream = s
	go s.run()
	return s
}

// send queues messages, and a ping if there is one.
func (l *link) send(ping *peerpb.HostPing, msgs []*peerpb.RaftMessage) {
	s := l.open()
	if s == nil {
		l.counters.dropped.Add(float64(len(msgs)))
		return
	}
	sent, bytes := 0, 0
	var oversized int
	tail := l.record(ping)
	s.out.Lock()
	for _, m := range msgs {
		size := m.SizeVT()
		if size > wire.MaxMessageBytes-1024 {
			oversized = size
			continue
		}
		if config := &l.transport.config; s.out.PendingLocked() > 0 &&
			(s.out.PendingLocked()+size > config.MaxQueueBytes ||
				l.class != ClassControl &&
					l.transport.queued.Load()+int64(bytes+size) > config.MaxQueuesBytes) {
			continue // A smaller one behind it may fit. Raft copes with gaps.
		}
		if _, err := s.out.AddLocked(tagMessages, m, size); err != nil {
			break // The stream has failed, and will report so.
		}
		sent++
		bytes += size
	}
	s.countLocked()
	if tail != nil {
		s.out.SetTailLocked(tail, ping.GetNumber())
	}
	s.kick()
	if len(msgs) == 0 {
		return
	}
	l.counters.messages.Add(float64(sent))
	l.counters.bytes.Add(float64(bytes))
	if oversized > 0 {
		l.transport.config.Logger.Error("message to peer is too large for any stream and was "+
			"dropped", "peer", l.host, "bytes", oversized, "limit", wire.MaxMessageBytes)
	}
	if sent < len(msgs) {
		l.counters.dropped.Add(float64(len(msgs) - sent))
		l.transport.unreachable.report(l.host)
	}
}

// record is an encoded ping, which ends a message; nil if there is no ping.
func (l *link) record(p *peerpb.HostPing) []byte {
	if p == nil {
		return nil
	}
	tail, err := outbox.Encode(tagPing, p)
	if err != nil {
		l.transport.config.Logger.Error("ping dropped", "peer", l.host, "error", err)
		return nil
	}
	return tail
}

// kick releases the outbox's lock and has it send.
func (s *stream) kick() {
	now := time.Now()
	direct := now.Sub(s.lastSend) >= outbox.DirectPause
	s.lastSend = now
	s.out.UnlockAndSend(direct)
}

// run opens the stream and waits for its end. The caller of enter has counted it.
func (s *stream) run() {
	l := s.link
	t := l.transport
	defer t.work.Done()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	var sender sync.WaitGroup
	err := s.serve(ctx, &sender)
	s.out.Close()
	sender.Wait()
	l.failed(err)
}

func (s *stream) serve(ctx context.Context, sender *sync.WaitGroup) error {
	t := s.link.transport
	id, address, err := t.identityTo(s.link.host)
	if err != nil {
		return err
	}
	late := fmt.Errorf("no stream within %v", openTimeout)
	opening, opened := context.WithTimeoutCause(ctx, openTimeout, late)
	defer opened()
	conn, err := t.config.Dialer.Open(opening, address, id.hello())
	if errors.Is(err, syscall.ECONNREFUSED) {
		t.refused.report(s.link.host)
	}
	if err != nil {
		return wire.Unavailable(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	inTime := context.AfterFunc(opening, func() { conn.Break(late) })
	conn.LimitUnacknowledged(unacknowledgedLimit)
	if err := conn.AwaitAccepted(); err != nil {
		return err
	}
	inTime()
	s.link.opened()
	conn.Watch(wire.ClientSilence, s.out.KeepAlive)
	s.out.Attach(conn)
	sender.Go(s.out.Run)
	// Nothing comes from the other side but the end.
	if _, err = conn.Receive(); err == nil {
		return errors.New("the peer sent a message on the stream of this host")
	}
	return err
}

// opened notes that the peer has accepted a stream.
func (l *link) opened() {
	l.mu.Lock()
	failures, missing, since := l.mu.backoff.Failures, l.mu.missing, l.mu.since
	l.mu.backoff, l.mu.missing = client.Backoff{}, false
	l.mu.Unlock()
	l.counters.streams.Inc()
	if missing {
		l.transport.config.Logger.Info("peer is reachable again", "peer", l.host,
			"after", time.Since(since).Round(time.Second))
	}
	l.transport.config.Logger.Debug("stream to peer is open", "peer", l.host,
		"class", l.class.String(), "after_failures", failures)
}

// failed gives the stream up, and begins the backoff.
func (l *link) failed(err error) {
	closing := l.transport.ctx.Err() != nil
	l.mu.Lock()
	l.mu.stream = nil
	now := time.Now()
	l.mu.backoff.Failed(now, reopenBase, reopenCap)
	if l.mu.backoff.Failures == 1 {
		l.mu.since = now
	}
	l.mu.reported = true
	failures, missing := l.mu.backoff.Failures, now.Sub(l.mu.since)
	// One class speaks for all: pings go out all the time.
	tell := l.class == ClassControl && !l.mu.missing && missing >= missingAfter
	l.mu.missing = l.mu.missing || tell
	l.mu.Unlock()
	if closing {
		return
	}
	l.transport.unreachable.report(l.host)
	switch code := status.Code(err); {
	case failures == 1 && (code == codes.FailedPrecondition || code == codes.InvalidArgument):
		l.transport.config.Logger.Warn("peer refuses this host", "peer", l.host,
			"class", l.class.String(), "error", wire.Reason(err))
	case tell:
		address, _ := l.transport.config.Resolve(l.host)
		l.transport.config.Logger.Warn("peer is out of reach; it is tried again and again",
			"peer", l.host, "address", address, "for", missing.Round(time.Second),
			"error", wire.Reason(err))
	default:
		l.transport.config.Logger.Debug("peer is not reachable", "peer", l.host,
			"class", l.class.String(), "failures", failures, "error", err)
	}
}

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
	// openTimeout bounds one attempt to open a stream to a peer. Messages are queued meanwhile.
	openTimeout = 2 * time.Second
	// After a failed attempt a link drops all messages for a while: reopenBase, doubled with each
	// failure in a row, at most reopenCap; each with ±25 % of jitter.
	reopenBase = 20 * time.Millisecond
	reopenCap  = time.Second
	// missingAfter is how long a peer may be unreachable before the log says so: while servers
	// start and restart that is normal.
	missingAfter = 10 * time.Second
	// unacknowledgedLimit is how long bytes written to a peer may go unacknowledged by its kernel.
	unacknowledgedLimit = 2 * time.Second
)

// The field numbers and wire types of the records in an outbox.
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
		// stream is nil before the first message, and after a failure.
		stream *stream
		// backoff is the pause after failed attempts.
		backoff client.Backoff
		// since is when the first of those failures happened. missing is set when the log has been
		// told.
		since   time.Time
		missing bool
		// reported is set when HandleUnreachable was called for this pause.
		reported bool
	}
}

// stream is one stream of messages to a peer, from opening to failure.
type stream struct {
	link *link
	out  *outbox.Outbox
	// lastSend and counted are guarded by out.mu. counted is this stream's part of the transport's
	// queued.
	lastSend time.Time
	counted  int64
}

// countLocked updates the count of bytes that wait to be sent.
func (s *stream) countLocked() {
	now := int64(s.out.PendingLocked())
	s.link.transport.queued.Add(now - s.counted)
	s.counted = now
}

// open returns the current stream, and opens one if there is none and the pause is over. nil: drop
// the message.
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

// send queues messages, and a ping unless it is nil.
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
			continue // A smaller message behind it may fit. Raft copes with gaps.
		}
		if _, err := s.out.AddLocked(tagMessages, m, size); err != nil {
			break // the stream has failed, and will report that
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

// record encodes a ping, which ends a message; nil if there is no ping.
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

// kick releases the outbox's lock and has the queue sent.
func (s *stream) kick() {
	now := time.Now()
	direct := now.Sub(s.lastSend) >= outbox.DirectPause
	s.lastSend = now
	s.out.UnlockAndSend(direct)
}

// run opens the stream and waits for its end. The caller of enter has counted this goroutine.
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
	// The other side sends nothing, so Receive returns only at the end.
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

// failed ends the stream, and begins the pause.
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
	// Only one class reports for all: pings are sent all the time.
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

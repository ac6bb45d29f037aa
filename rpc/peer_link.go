package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

const (
	// openTimeout bounds one attempt to open a stream to a peer. Meanwhile messages are queued.
	openTimeout = 2 * time.Second
	// After a failed attempt a link drops what it is given for a while: reopenBase, doubled with each failure in a row, at
	// most reopenCap; each with ±25 % of jitter.
	reopenBase = 20 * time.Millisecond
	reopenCap  = time.Second
	// missingAfter is for how long a peer may be out of reach before the log says so: while servers start and restart it is normal.
	missingAfter = 10 * time.Second
	// directPause is how long a link, or a client's lane, must have been quiet for a message to be sent by whoever has it at once. If there
	// was one just before, others are about to follow, and go together.
	directPause = 50 * time.Microsecond
)

// link is this host's sending side to one host, in one class of traffic. It outlives its streams.
type link struct {
	transport *PeerTransport
	host      uint64
	class     Class
	counters  *linkCounters
	laneRest  laneRest

	mu struct {
		sync.Mutex
		// stream is nil while there is none: until the first message, and after a failure.
		stream *peerStream
		// failures counts attempts that failed in a row; until retryAt no new one is made.
		failures int
		retryAt  time.Time
		// since is when the first of those failures was; missing: the log has been told.
		since   time.Time
		missing bool
		// reported: HandleUnreachable was told about this pause.
		reported bool
	}
}

// peerStream is one stream of messages to a peer, from opening to failure.
type peerStream struct {
	link *link
	out  *outbox
	// lastSend is guarded by out.mu.
	lastSend time.Time
}

// open gives the current stream, and begins a new one if there is none and it is time. nil: drop.
func (l *link) open() *peerStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.stream != nil {
		return l.mu.stream
	}
	if time.Now().Before(l.mu.retryAt) {
		if !l.mu.reported {
			l.mu.reported = true
			l.transport.unreachable.report(l.host)
		}
		return nil
	}
	if !l.transport.enter() {
		return nil
	}
	s := &peerStream{link: l, out: newOutbox()}
	l.mu.stream = s
	go s.run()
	return s
}

func (l *link) send(msgs []*peerpb.RaftMessage) {
	s := l.open()
	if s == nil {
		l.counters.dropped.Add(float64(len(msgs)))
		return
	}
	sent, bytes := 0, 0
	var oversized int
	s.out.mu.Lock()
	for _, m := range msgs {
		size := m.SizeVT()
		if size > MaxMessageBytes-1024 {
			oversized = size
			continue
		}
		if s.out.mu.bytes > 0 && s.out.mu.bytes+size > l.transport.config.MaxQueueBytes {
			continue // A smaller one behind it may fit. Raft copes with gaps.
		}
		if _, err := s.out.addLocked(tagMessages, m, size); err != nil {
			break // The stream has failed, and will report so.
		}
		sent++
		bytes += size
	}
	s.kick()
	l.counters.messages.Add(float64(sent))
	l.counters.bytes.Add(float64(bytes))
	if oversized > 0 {
		l.transport.config.Logger.Error("message to peer is too large for any stream and was dropped", "peer", l.host, "bytes", oversized, "limit", MaxMessageBytes)
	}
	if sent < len(msgs) {
		l.counters.dropped.Add(float64(len(msgs) - sent))
		l.transport.unreachable.report(l.host)
	}
}

func (l *link) ping(p *peerpb.HostPing) {
	s := l.open()
	if s == nil {
		return
	}
	size := p.SizeVT()
	tail := make([]byte, recordSize(size))
	if err := putRecord(tail, tagPing, p, size); err != nil {
		l.transport.config.Logger.Error("ping dropped", "peer", l.host, "error", err)
		return
	}
	s.out.mu.Lock()
	if !s.out.mu.closed {
		s.out.mu.tail = tail
	}
	s.kick()
}

// kick releases the outbox's lock and has it send.
func (s *peerStream) kick() {
	now := time.Now()
	direct := now.Sub(s.lastSend) >= directPause
	s.lastSend = now
	s.out.unlock(direct)
}

// run opens the stream and waits for its end. The caller of enter has counted it.
func (s *peerStream) run() {
	l := s.link
	t := l.transport
	defer t.work.Done()
	ctx, cancel := context.WithCancelCause(t.ctx)
	var sender sync.WaitGroup
	err := s.serve(ctx, cancel, &sender)
	cancel(nil)
	s.out.close()
	sender.Wait()
	l.failed(err)
}

func (s *peerStream) serve(ctx context.Context, cancel context.CancelCauseFunc, sender *sync.WaitGroup) error {
	l := s.link
	t := l.transport
	ctx, conn, err := t.connect(ctx, l.host)
	if err != nil {
		return err
	}
	deadline := time.AfterFunc(openTimeout, func() { cancel(fmt.Errorf("no stream within %v", openTimeout)) })
	defer deadline.Stop()
	// gRPC's own pause between attempts to connect may still run; it is short. (ClientConn.ResetConnectBackoff would end it, but
	// in grpc-go 1.85 it reads a map that another goroutine may be writing.)
	stream, err := peerpb.NewPeerClient(conn).Messages(ctx, grpc.WaitForReady(true))
	if err == nil {
		// Asking for the context commits the stream to this connection: no replaying on another, with the sender kept waiting.
		_ = stream.Context()
		// Do not wait for the peer's word before sending: it costs a round trip, and a peer that refuses takes nothing in.
		s.out.attach(stream)
		sender.Go(s.out.run)
		// No header and no error means that the peer refused; receiving says why.
		var header metadata.MD
		if header, err = stream.Header(); err == nil && header != nil && deadline.Stop() {
			l.opened()
			if end := s.takeLane(stream, header.Get(laneKey), cancel, sender); end != nil {
				defer end()
			}
		}
	}
	if err == nil {
		err = stream.RecvMsg(new(peerpb.MessagesEnd))
	}
	switch {
	case err == nil:
		return errors.New("the peer ended the stream")
	case ctx.Err() != nil && t.ctx.Err() == nil:
		return context.Cause(ctx)
	}
	return err
}

// takeLane moves the messages of a stream for Raft to a lane, if the peer offers one. cancel is called when the lane breaks. end, if it is
// not nil, closes it. What else there is to say comes ten times a second, and is not worth a connection.
func (s *peerStream) takeLane(stream grpc.ClientStream, tokens []string, cancel context.CancelCauseFunc, watcher *sync.WaitGroup) (end func()) {
	l := s.link
	addr, ok := l.transport.config.Resolve(l.host)
	if l.class != ClassConsensus || len(tokens) != 1 || !l.laneRest.over() || !ok {
		return nil
	}
	conn, err := l.transport.config.Dialer.openLane(stream.Context(), addr, tokens[0])
	if err != nil {
		l.transport.config.Logger.Debug("no lane to peer", "peer", l.host, "class", l.class.String(), "error", err)
		return nil
	}
	limitUnacknowledged(conn, laneTimeout)
	made := time.Now()
	var ended atomic.Bool
	if s.out.replace(&laneSender{conn: conn}) {
		if err := stream.CloseSend(); err != nil {
			l.transport.config.Logger.Debug("end of messages on stream to peer", "peer", l.host, "error", err)
		}
	}
	watcher.Go(func() {
		// Nothing comes from the other side but the end.
		_, err := conn.Read(make([]byte, 1))
		if !ended.Load() {
			l.laneRest.broke(made)
		}
		cancel(fmt.Errorf("the stream's lane broke: %w", err))
	})
	return func() {
		ended.Store(true)
		_ = conn.Close()
	}
}

// opened notes that the peer has accepted a stream.
func (l *link) opened() {
	l.mu.Lock()
	failures, missing, since := l.mu.failures, l.mu.missing, l.mu.since
	l.mu.failures, l.mu.missing = 0, false
	l.mu.Unlock()
	l.counters.streams.Inc()
	if missing {
		l.transport.config.Logger.Info("peer is reachable again", "peer", l.host, "after", time.Since(since).Round(time.Second))
	}
	l.transport.config.Logger.Debug("stream to peer is open", "peer", l.host, "class", l.class.String(), "after_failures", failures)
}

// failed gives the stream up, and begins the pause.
func (l *link) failed(err error) {
	closing := l.transport.ctx.Err() != nil
	l.mu.Lock()
	l.mu.stream = nil
	pause := min(reopenBase<<min(l.mu.failures, 10), reopenCap)
	pause += time.Duration((rand.Float64() - 0.5) / 2 * float64(pause))
	l.mu.retryAt = time.Now().Add(pause)
	if l.mu.failures++; l.mu.failures == 1 {
		l.mu.since = time.Now()
	}
	l.mu.reported = true
	failures, missing := l.mu.failures, time.Since(l.mu.since)
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
		l.transport.config.Logger.Warn("peer refuses this host", "peer", l.host, "class", l.class.String(), "error", Reason(err))
	case tell:
		address, _ := l.transport.config.Resolve(l.host)
		l.transport.config.Logger.Warn("peer is out of reach; it is tried again and again", "peer", l.host, "address", address, "for", missing.Round(time.Second), "error", Reason(err))
	default:
		l.transport.config.Logger.Debug("peer is not reachable", "peer", l.host, "class", l.class.String(), "failures", failures, "error", err)
	}
}

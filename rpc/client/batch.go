package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// ErrClosed is returned by a closed BatchConn.
var ErrClosed = errors.New("rpc: connection is closed")

// ErrMessageTooLarge is returned for a request that does not fit into a message. The request was
// not sent.
var ErrMessageTooLarge = errors.New("rpc: request is too large")

// ErrNotSent is wrapped by the error of a request that certainly never left this process.
var ErrNotSent = errors.New("rpc: request was not sent")

// ErrStreamBroken is the error of a request whose stream ended before its response came. It is
// returned as *ErrStreamBroken.
type ErrStreamBroken struct {
	// Sent is false if the request certainly never left this process. If true, it may or may not have
	// been executed.
	Sent bool
	// Cause is why the stream ended: a gRPC status.
	Cause error
}

// Error implements error.
func (e *ErrStreamBroken) Error() string {
	if e.Sent {
		return fmt.Sprintf("stream broke after the request was sent: %v", e.Cause)
	}
	return fmt.Sprintf("stream broke before the request was sent: %v", e.Cause)
}

// Unwrap gives the cause.
func (e *ErrStreamBroken) Unwrap() error { return e.Cause }

// BatchConfig configures a BatchConn.
type BatchConfig struct {
	// Dialer connects to Address, the address of the node.
	Dialer  *Dialer
	Address string
	// Client is the id of the client, random and not 0.
	Client uint64
	// Stream returns the next stream number, higher than all before. It is called once for each
	// stream that is opened.
	Stream func() uint64
	// Cluster is the id of the client's cluster; 0 while it is unknown.
	Cluster uint64
	// Token returns the token that identifies the client, for each stream that is opened; "" for
	// none. It may block for a while. nil: there is no token. See Show for an open stream.
	Token func(context.Context) string
	// Server is set if the client is a server of the cluster, as the connection proves.
	Server bool
	// MaxInFlight bounds the requests without response (default 4096, at most 65536); further
	// callers wait.
	MaxInFlight int
	// MaxInFlightBytes bounds the bytes that wait to be sent (default 16 MiB); further callers
	// wait. A single larger request passes.
	MaxInFlightBytes int
}

// BatchConn carries a client's requests to one node over one stream, many at a time. The stream
// opens with the first request, and again with the first request after it broke. Safe for
// concurrent use.
type BatchConn struct {
	config BatchConfig
	// current is nil before the first stream. A broken stream stays until the next request replaces
	// it.
	current atomic.Pointer[stream]

	mu struct {
		sync.Mutex
		closed bool
		// backoff is the pause after a stream could not be opened; opening is the reason.
		backoff Backoff
		opening error
	}

	ctx    context.Context
	cancel context.CancelFunc
	// streams counts the goroutines of streams.
	streams sync.WaitGroup
	// calls holds *call. Each BatchConn has a pool of its own, because in tests a channel belongs
	// to the synctest bubble that made it.
	calls sync.Pool
}

// NewBatchConn makes a BatchConn. It does nothing until the first Do.
func NewBatchConn(c BatchConfig) *BatchConn {
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 4096
	}
	c.MaxInFlight = min(c.MaxInFlight, 1<<slotBits)
	if c.MaxInFlightBytes <= 0 {
		c.MaxInFlightBytes = 16 << 20
	}
	b := &BatchConn{config: c}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.calls.New = func() any { return &call{done: make(chan int, 1)} }
	return b
}

// Do sends a request and waits for its response. It assigns r.Id. The errors:
//
//   - *ErrStreamBroken: the stream ended first; its Sent says whether the node can have seen the
//     request.
//   - the context's error, returned at once. The request may have been sent, and may yet take
//     effect; unless ErrNotSent is in the chain.
//   - ErrMessageTooLarge, ErrClosed, and others with ErrNotSent in the chain: it was not sent.
//
// An error of the request itself comes in the response. r must not be changed while Do runs; it is
// not kept. The response belongs to the caller, and its byte slices alias the message that brought
// it: copy what is kept for long.
func (b *BatchConn) Do(ctx context.Context, r *kvpb.Request) (*kvpb.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSentBecause(err)
	}
	r.Id = 0
	size := r.SizeVT()
	if size > wire.MaxMessageBytes-1024 {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMessageTooLarge, size,
			wire.MaxMessageBytes-1024)
	}
	c := b.calls.Get().(*call)
	for {
		s, err := b.stream()
		if err != nil {
			b.calls.Put(c)
			return nil, err
		}
		room, err := s.submit(c, r, size)
		if err != nil {
			// c is not reused: the stream may have failed meanwhile, and completed c.
			return nil, notSentBecause(err)
		}
		if room == nil {
			return s.await(ctx, c)
		}
		select {
		case <-room:
		case <-ctx.Done():
			b.calls.Put(c)
			return nil, notSentBecause(ctx.Err())
		}
	}
}

// notSentBecause returns the error of a request that was not sent.
func notSentBecause(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }

// Close ends the stream. Outstanding requests fail with *ErrStreamBroken, later ones with
// ErrClosed. It waits for the goroutines.
func (b *BatchConn) Close() {
	b.mu.Lock()
	b.mu.closed = true
	b.mu.Unlock()
	b.cancel()
	b.streams.Wait()
}

// BatchStats counts the requests without response, the bytes that wait to be sent, and the messages
// sent on the open stream.
type BatchStats struct {
	InFlight, WaitingBytes int
	Messages               uint64
}

// Stats returns the present counts.
func (b *BatchConn) Stats() (stats BatchStats) {
	if s := b.current.Load(); s != nil {
		stats.Messages = s.out.Messages()
		s.out.Lock()
		defer s.out.Unlock()
		stats.InFlight, stats.WaitingBytes = s.inFlight, s.out.PendingLocked()
	}
	return stats
}

// stream returns the current stream, or a new one if that is broken.
func (b *BatchConn) stream() (*stream, error) {
	if s := b.current.Load(); s != nil && !s.broken.Load() {
		return s, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.closed {
		return nil, ErrClosed
	}
	if s := b.current.Load(); s != nil && !s.broken.Load() {
		return s, nil
	}
	if b.mu.backoff.Lasts(time.Now()) {
		return nil, &ErrStreamBroken{Cause: b.mu.opening}
	}
	s := newStream(b)
	b.current.Store(s)
	b.streams.Go(s.run)
	return s, nil
}

// call is one request that waits for its response. It is reused when nothing refers to it any more.
type call struct {
	// done receives number when the outcome is there. Its capacity suffices, so the sender does not
	// block.
	done   chan int
	number int
	// stream is the stream of a call that belongs to a Calls, nil for a call of Do.
	stream *stream
	// id and chunk are guarded by the stream's lock. chunk is the outbox's chunk that holds the
	// request.
	id    uint64
	chunk uint64
	// The outcome; the receiver of done may read them.
	response *kvpb.Response
	err      error
}

// notSent is the chunk number of a request that is not in the outbox yet.
const notSent = ^uint64(0)

// A request id consists of a number, shifted by slotBits, and the index of its slot, so that a
// response finds its call without a map.
const slotBits = 16

// slot is one place for a request in flight.
type slot struct {
	// id is 0 while the slot is free.
	id uint64
	// call is nil if the caller has given up. The slot stays taken until the node answers the
	// request.
	call *call
}

// stream is one stream, from opening to its end.
type stream struct {
	conn *BatchConn
	out  *outbox.Outbox
	// broken is set, under out.mu, when the stream takes no further request.
	broken atomic.Bool

	// Guarded by out.mu.
	slots    []slot
	free     []uint32
	inFlight int
	lastID   uint64
	// room is made by a caller that has to wait, and closed when there may be room.
	room chan struct{}
}

func newStream(b *BatchConn) *stream {
	s := &stream{conn: b}
	s.out = outbox.New(s.makeRoomLocked)
	return s
}

// submit enters the request into a slot and the outbox. If it returns a room, it did not: wait for
// that, and try again on the then current stream.
func (s *stream) submit(c *call, r *kvpb.Request,
	size int) (room <-chan struct{}, err error) {
	s.out.Lock()
	if s.broken.Load() {
		s.out.Unlock()
		return closedRoom, nil
	}
	if !s.hasRoomLocked(size) {
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room = s.room
		s.out.Unlock()
		return room, nil
	}
	s.enterLocked(c)
	r.Id = c.id
	size += 1 + wire.VarintSize(c.id)

	if size >= outbox.LargeRecord {
		// Copying takes a while, so it is done without the lock. If the stream breaks meanwhile,
		// the call fails as not sent.
		s.out.Unlock()
		chunk, err := outbox.Prepare(tagRequests, r, size)
		s.out.Lock()
		if err == nil {
			var number uint64
			if number, err = s.out.AddChunkLocked(chunk); err == nil {
				c.chunk = number
			}
		}
		return nil, s.submitted(c, err)
	}
	chunk, err := s.out.AddLocked(tagRequests, r, size)
	if err == nil {
		c.chunk = chunk
	}
	return nil, s.submitted(c, err)
}

// hasRoomLocked reports whether another request of that size may be added.
func (s *stream) hasRoomLocked(size int) bool {
	config := &s.conn.config
	return s.inFlight < config.MaxInFlight &&
		(s.out.PendingLocked() == 0 || s.out.PendingLocked()+size <= config.MaxInFlightBytes)
}

// submitted releases the lock. If the request could not be added because the stream has just ended,
// the call's failure is on its way.
func (s *stream) submitted(c *call, err error) error {
	if err == nil || errors.Is(err, outbox.ErrClosed) {
		s.out.UnlockAndSend(s.inFlight <= directCallers || s.out.QuietLocked())
		return nil
	}
	s.leaveLocked(c.id)
	s.out.Unlock()
	return err
}

// enterLocked gives the call a slot and an id.
func (s *stream) enterLocked(c *call) {
	var index uint32
	if n := len(s.free); n > 0 {
		index = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		index = uint32(len(s.slots))
		s.slots = append(s.slots, slot{})
	}
	s.lastID++
	s.inFlight++
	c.id = s.lastID<<slotBits | uint64(index)
	c.chunk = notSent
	s.slots[index] = slot{id: c.id, call: c}
}

// leaveLocked frees the slot of a request. It returns the call, if its caller still waits.
func (s *stream) leaveLocked(id uint64) *call {
	index := id & (1<<slotBits - 1)
	if id == 0 || index >= uint64(len(s.slots)) || s.slots[index].id != id {
		return nil
	}
	c := s.slots[index].call
	s.slots[index] = slot{}
	s.free = append(s.free, uint32(index))
	s.inFlight--
	s.makeRoomLocked()
	return c
}

func (s *stream) makeRoomLocked() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// await waits for the outcome of a submitted call.
func (s *stream) await(ctx context.Context, c *call) (*kvpb.Response, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		if over, sent := s.abandon(c); over {
			s.conn.calls.Put(c)
			if !sent {
				return nil, notSentBecause(ctx.Err())
			}
			return nil, ctx.Err()
		}
		<-c.done // the outcome came first, and is about to be sent
	}
	response, err := c.response, c.err
	c.response, c.err = nil, nil
	s.conn.calls.Put(c)
	return response, err
}

// abandon gives up a submitted call. over is false if the outcome has come first: then it is in
// done, or about to be. sent is false if the request could be removed from the outbox, and so never
// reaches the node.
func (s *stream) abandon(c *call) (over, sent bool) {
	s.out.Lock()
	defer s.out.Unlock()
	slot := &s.slots[c.id&(1<<slotBits-1)]
	if slot.id != c.id || slot.call != c {
		return false, true
	}
	if s.out.CancelLocked(tagRequests, c.chunk, c.id) {
		s.leaveLocked(c.id)
		return true, false
	}
	slot.call = nil
	return true, true
}

// run opens the stream, and receives until it breaks.
func (s *stream) run() {
	ctx, cancel := context.WithCancel(s.conn.ctx)
	defer cancel()
	var sender sync.WaitGroup
	err := s.receive(ctx, &sender)
	switch {
	case errors.Is(err, io.EOF):
		err = errors.New("the node ended the stream")
	case s.conn.ctx.Err() != nil:
		err = status.FromContextError(s.conn.ctx.Err()).Err()
	}
	s.fail(err)
	s.out.Close()
	sender.Wait()
}

// receive receives from the stream until it ends. It starts the sender.
func (s *stream) receive(ctx context.Context, sender *sync.WaitGroup) error {
	conn, err := s.open(ctx, sender)
	s.conn.opened(err)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var done []*call
	var batch kvpb.BatchResponse
	for {
		message, err := conn.Receive()
		if err != nil {
			return err
		}
		responses := batch.Responses[:0]
		batch.Reset() // decoding appends, also to unknown fields
		batch.Responses = responses
		if err := wire.UnmarshalOwned(message, &batch); err != nil {
			return status.Errorf(codes.Internal, "message of the node: %v", err)
		}
		done = s.dispatch(batch.Responses, done[:0])
		clear(done)
		clear(batch.Responses)
	}
}

// open makes the stream's connection, waits until the node accepts it, and starts to send the
// gathered requests.
func (s *stream) open(
	ctx context.Context, sender *sync.WaitGroup,
) (_ *transport.Conn, err error) {
	config := &s.conn.config
	hello := &kvpb.Hello{Client: config.Client, Cluster: config.Cluster, Server: config.Server}
	if config.Token != nil {
		hello.Token = config.Token(ctx)
	}
	hello.Stream = config.Stream()
	encoded, err := encodeHello(hello)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := config.Dialer.Open(ctx, config.Address, encoded)
	if err != nil {
		return nil, wire.Unavailable(err)
	}
	defer func() {
		if err != nil {
			_ = conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.Break(errors.New("no answer in time")) })()
	if err = conn.AwaitAccepted(); err != nil {
		return nil, err
	}
	// No request leaves earlier: a stream that is not accepted has certainly run no request.
	conn.Watch(wire.ClientSilence, s.out.KeepAlive)
	s.out.Attach(conn)
	sender.Go(s.out.Run)
	return conn, nil
}

// encodeHello encodes the beginning of a client's stream.
func encodeHello(h *kvpb.Hello) ([]byte, error) {
	b, err := (&kvpb.BatchRequest{Hello: h}).MarshalVT()
	if err != nil {
		return nil, fmt.Errorf("hello of a client: %w", err)
	}
	return append([]byte{wire.HelloClient}, b...), nil
}

// opened records whether a stream could be opened.
func (b *BatchConn) opened(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.opening = err
	if err == nil {
		b.mu.backoff = Backoff{}
		return
	}
	b.mu.backoff.Failed(time.Now(), connectBackoffBase, connectBackoffCap)
}

// dispatch passes responses to the calls that wait for them. Other responses are dropped.
func (s *stream) dispatch(responses []*kvpb.Response, done []*call) []*call {
	s.out.Lock()
	for _, r := range responses {
		if c := s.leaveLocked(r.Id); c != nil {
			c.response = r
			done = append(done, c)
		}
	}
	s.out.Unlock()
	for _, c := range done {
		c.done <- c.number
	}
	return done
}

// fail ends the stream for all calls that wait.
func (s *stream) fail(cause error) {
	s.out.Lock()
	s.broken.Store(true)
	var failed []*call
	for i := range s.slots {
		if c := s.slots[i].call; c != nil {
			// A chunk below first was passed to the connection.
			c.err = &ErrStreamBroken{Sent: s.out.GivenLocked(c.chunk), Cause: cause}
			failed = append(failed, c)
		}
		s.slots[i] = slot{}
	}
	s.out.CloseLocked()
	s.makeRoomLocked() // if the outbox was closed before, it does not call progress
	s.out.Unlock()
	for _, c := range failed {
		c.done <- c.number
	}
}

// closedRoom is a room that is closed already.
var closedRoom = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

const (
	// The field numbers and wire types of the records in an outbox.
	tagRequests = 2<<3 | 2 // BatchRequest.requests

	// directCallers is the number of requests in flight up to which a caller sends its request
	// itself, at once. With more callers, others are likely to add requests soon, and a message for
	// each costs more than one goroutine switch for all.
	directCallers = 2
)

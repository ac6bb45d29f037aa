package rpc

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// gRPC takes in a message of a call before anything of it is decoded or checked, up to the largest
// size that any method has, on each of a connection's streams. So the bytes of messages that are
// not complete are counted for all connections of clients together; when they are more than
// maxInbound, the connection with most of them is closed, which frees them.
//
// What is counted of a connection is what was read of it in DATA frames, less the messages that
// have come out. What a call had sent of a message when it was given up stays in that account until
// no call is open on the connection.
//
// A message that is complete counts as what its decoding takes, from before it is decoded until the
// call is over, or until the next message of a stream (request_memory.go).
//
// A client that is well-behaved does not come to that, however many calls it makes at a time. What
// it sends of a call before that is served is bounded by the window of a stream. From when a call
// is served gRPC grants it all of its message; so of each connection only some calls are served
// that have not sent their message yet, and only one while much is incomplete. The others wait, and
// by HTTP/2's flow control their client waits with them. Calls that go on sending, which may never
// send a large message, do not wait.
//
// Connections of servers are not counted, and so a client could have another server bring what this
// one would refuse. So a call that a server passes on for a client counts, by the memory of its
// message and by the processor time that takes, for the party that the server names (callOf). What
// servers bring of their own never counts. Nor do bytes of incomplete messages that are passed on:
// the server that passes them on bounds those.
//
// Calls are counted by an interceptor and where services are registered (inbound_calls.go): for a
// stats.Handler gRPC collects far more, and that costs about a seventh of the server's time for a
// small call.

// maxInbound bounds the bytes of incomplete messages.
const maxInbound = 256 << 20

// inbound counts them.
type inbound struct {
	limit  int64
	closed func()
	// receivedBytes and sentBytes count those on connections of gRPC; nil: nothing does.
	receivedBytes, sentBytes *metric.Counter
	// memory is for messages that are complete.
	memory *RequestMemory
	// passedOn is ServerConfig.PassedOn; nil: no call is passed on. pace is what parties of such calls
	// are paced by, if not nil, and paused is told of each pause.
	passedOn func(context.Context) (party string, ok bool)
	pace     *quota.Pace
	paused   func(time.Duration)

	mu    sync.Mutex
	total int64
	conns map[string]*inboundConn // by remote address
	// passing is how many calls are open that are passed on.
	passing int64
}

func newInbound(limit int64, memory *RequestMemory, closed func()) *inbound {
	return &inbound{limit: limit, memory: memory, closed: closed, conns: make(map[string]*inboundConn)}
}

// inboundConn is a connection that is counted.
type inboundConn struct {
	net.Conn
	in *inbound
	// pace is nil without.
	pace    *connPace
	address inboundAddress
	// frames is for the one goroutine that reads.
	frames frames
	// counted: the connection is among in.conns. incomplete is how many bytes of incomplete messages
	// there are, and calls how many calls are open. receiving is how many calls are served whose
	// message is awaited, and waiting are those that wait to be. in.mu guards them.
	counted           bool
	incomplete, calls int64
	receiving         int
	waiting           []*inboundCall
}

const (
	// maxReceiving bounds inboundConn.receiving.
	maxReceiving = 16
	// freeCalls is how many open calls of a connection, or of all that are passed on, take none of the
	// memory for clients' requests for themselves. Each further one takes openCallBytes: a watch, or a
	// wait for a lock, takes about as much of goroutines, stacks and buffers.
	freeCalls     = 2048
	openCallBytes = 16 << 10
)

// inboundAddress is the remote address of a connection that is counted. By it a call, which is
// given it by gRPC, is known to be of that connection.
type inboundAddress struct {
	net.Addr
	conn *inboundConn
	text string
}

// String implements net.Addr.
func (a *inboundAddress) String() string { return a.text }

// RemoteAddr implements net.Conn.
func (c *inboundConn) RemoteAddr() net.Addr { return &c.address }

// inboundCall is a call that is counted.
type inboundCall struct {
	// conn is nil if another server passes the call on.
	conn *inboundConn
	// party is charged for the call.
	party string
	// pace is that of the connection, or the call's own if it is passed on; nil without.
	pace *connPace
	// served is closed when the call may receive. It is nil for a call that need not wait.
	served chan struct{}
	// receives: it is one of conn.receiving; waits: it is one of conn.waiting. in.mu guards them.
	receives, waits bool
}

// callOf is the counted call of a context: that of a client, or one that another server passes on
// for a client. nil: the call is not counted.
func (in *inbound) callOf(ctx context.Context) *inboundCall {
	if c := inboundOf(ctx); c != nil {
		return &inboundCall{conn: c, party: authn.PrincipalOfCall(ctx), pace: c.pace}
	}
	if in.passedOn == nil {
		return nil
	}
	party, ok := in.passedOn(ctx)
	if !ok {
		return nil
	}
	if party == "" {
		party = authn.PrincipalOfCall(ctx)
	}
	call := &inboundCall{party: party}
	if in.pace != nil {
		call.pace = &connPace{pace: in.pace, of: party}
	}
	return call
}

// charge charges the party of a call that is passed on for a message, and waits if the party has to
// pause. Of other calls the connection pays and waits, when it is read.
func (in *inbound) charge(ctx context.Context, call *inboundCall, bytes int64) {
	if call.pace == nil {
		return
	}
	call.pace.charge(costOfMessage + time.Duration(bytes)*costOfCallByte)
	if call.pace.stranger.Load() { // not to the server that passes the call on
		call.pace.use()
		return
	}
	wait := time.Duration(call.pace.owed.Swap(0))
	if wait <= 0 {
		return
	}
	in.paused(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// mayReceiveLocked says whether another call of a connection may receive its message.
func (in *inbound) mayReceiveLocked(c *inboundConn) bool {
	return c.receiving == 0 || c.receiving < maxReceiving && in.total < in.limit/2
}

// begin notes that a call has begun, whose end is noted whatever begin returns. A call of one
// message waits until it may receive that, or has ended. A call beside many others, of the
// connection or of those that are passed on, is refused if there is no memory for it.
func (in *inbound) begin(
	ctx context.Context, call *inboundCall, one bool, memory *messageMemory,
) error {
	c, calls := call.conn, &in.passing
	if c != nil {
		calls = &c.calls
	}
	in.mu.Lock()
	if *calls++; *calls > freeCalls {
		in.mu.Unlock()
		if !memory.takeCall() {
			call.pace.owe(debtOfCall)
			return errNoMoreCalls
		}
		in.mu.Lock()
	}
	if !one || c == nil {
		in.mu.Unlock()
		return nil
	}
	if len(c.waiting) == 0 && in.mayReceiveLocked(c) {
		c.receiving++
		call.receives = true
		in.mu.Unlock()
		return nil
	}
	call.served, call.waits = make(chan struct{}), true
	c.waiting = append(c.waiting, call)
	in.mu.Unlock()
	select {
	case <-call.served:
	case <-ctx.Done():
	}
	return nil
}

// received notes that a message of so many bytes has come out. It may pause the call.
func (in *inbound) received(ctx context.Context, call *inboundCall, bytes int64) {
	if call.conn == nil {
		in.charge(ctx, call, bytes)
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.takeOutLocked(call.conn, bytes)
	in.receivedLocked(call)
}

// end notes that a call is over.
func (in *inbound) end(call *inboundCall) {
	c := call.conn
	in.mu.Lock()
	defer in.mu.Unlock()
	if c == nil {
		in.passing--
		return
	}
	if c.calls--; c.calls == 0 {
		in.takeOutLocked(c, c.incomplete) // of calls that were given up
	}
	in.receivedLocked(call)
}

func (in *inbound) takeOutLocked(c *inboundConn, bytes int64) {
	if c.counted {
		bytes = min(c.incomplete, bytes)
		c.incomplete -= bytes
		in.total -= bytes
	}
}

// receivedLocked is for when a call has its message, or has ended.
func (in *inbound) receivedLocked(call *inboundCall) {
	c := call.conn
	if call.receives {
		call.receives = false
		c.receiving--
	} else if call.waits {
		call.waits = false
		i := slices.Index(c.waiting, call)
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	for len(c.waiting) > 0 && in.mayReceiveLocked(c) {
		next := c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
		c.receiving++
		next.waits, next.receives = false, true
		close(next.served)
	}
}

// watch counts a connection from now on.
func (in *inbound) watch(conn net.Conn, pace *connPace) net.Conn {
	c := &inboundConn{Conn: conn, in: in, pace: pace, frames: frames{skip: len(http2.ClientPreface)},
		counted: true}
	c.address = inboundAddress{conn.RemoteAddr(), c, conn.RemoteAddr().String()}
	in.mu.Lock()
	defer in.mu.Unlock()
	if before := in.conns[c.address.text]; before != nil {
		in.forgetLocked(before) // it is gone, or the address is no port's (package memnet)
	}
	in.conns[c.address.text] = c
	return c
}

// Read implements net.Conn.
func (c *inboundConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.in.receivedBytes != nil {
		c.in.receivedBytes.Add(float64(n))
	}
	content := c.frames.content(b[:n])
	if content == 0 {
		return n, err
	}
	in := c.in
	var largest *inboundConn
	large := false
	in.mu.Lock()
	if c.counted {
		c.incomplete += content
		large = c.incomplete > largeIncomplete
		in.total += content
		if in.total > in.limit {
			for _, other := range in.conns {
				if largest == nil || other.incomplete > largest.incomplete {
					largest = other
				}
			}
			in.forgetLocked(largest)
		}
	}
	in.mu.Unlock()
	if largest != nil {
		in.closed()
		_ = largest.Conn.Close()
	}
	if large {
		c.pace.owe(time.Duration(content) * debtOfByte)
		c.pace.rest()
	}
	return n, err
}

// Write implements net.Conn.
func (c *inboundConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.in.sentBytes != nil {
		c.in.sentBytes.Add(float64(n))
	}
	return n, err
}

// Close implements net.Conn.
func (c *inboundConn) Close() error {
	c.in.mu.Lock()
	c.in.forgetLocked(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

func (in *inbound) forgetLocked(c *inboundConn) {
	if c.counted {
		delete(in.conns, c.address.text)
		c.counted = false
		in.total -= c.incomplete
	}
}

// inboundOf is the connection of a call; nil if it is not counted.
func inboundOf(ctx context.Context) *inboundConn {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if address, ok := from.Addr.(*inboundAddress); ok {
		return address.conn
	}
	return nil
}

package limit

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// gRPC takes in a message of a call before anything of it is decoded or checked, up to the largest
// size that any method has, on each of a connection's streams. So the bytes of messages that are
// not complete are counted for all connections of clients together; when they are more than
// defaultRecvBytes, the connection with most of them is closed, which frees them.
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
// message and by the processor time that takes, for the principal that the server names (callOf).
// What servers bring of their own never counts. Nor do bytes of incomplete messages that are passed
// on: the server that passes them on bounds those.
//
// Calls are counted by an interceptor and where services are registered (recv_calls.go): for a
// stats.Handler gRPC collects far more, and that costs about a seventh of the server's time for a
// small call.

// defaultRecvBytes bounds the bytes of incomplete messages.
const defaultRecvBytes = 256 << 20

// RecvConfig configures a RecvBudget.
type RecvConfig struct {
	// Limit bounds the bytes of incomplete messages; 0: defaultRecvBytes. Closed is called for
	// each connection that is closed because of the limit.
	Limit  int64
	Closed func()
	// ReceivedBytes and SentBytes count those on connections of gRPC; nil: nothing does.
	ReceivedBytes, SentBytes *metric.Counter
	// Memory is for messages that are complete.
	Memory *RequestMemory
	// PassedOn says whether a server passes a call on for a client, and for which principal; nil: no
	// call is passed on. CPU, if not nil, limits the principals of such calls, and Paused is told of
	// each wait.
	PassedOn func(context.Context) (principal string, ok bool)
	CPU      *quota.CPULimiter
	Paused   func(time.Duration)
}

// RecvBudget bounds the bytes of incomplete messages of gRPC. Safe for concurrent use.
type RecvBudget struct {
	RecvConfig

	mu    sync.Mutex
	total int64
	conns map[string]*recvConn // by remote address
	// passing is how many calls are open that are passed on.
	passing int64
}

func NewRecvBudget(c RecvConfig) *RecvBudget {
	if c.Limit <= 0 {
		c.Limit = defaultRecvBytes
	}
	return &RecvBudget{RecvConfig: c, conns: make(map[string]*recvConn)}
}

// recvConn is a connection that is counted.
type recvConn struct {
	net.Conn
	in *RecvBudget
	// throttle is nil without a limiter.
	throttle *ConnThrottle
	address  recvAddress
	// frames is for the one goroutine that reads.
	frames frames
	// counted: the connection is among in.conns. incomplete is how many bytes of incomplete messages
	// there are, and calls how many calls are open. receiving is how many calls are served whose
	// message is awaited, and waiting are those that wait to be. in.mu guards them.
	counted           bool
	incomplete, calls int64
	receiving         int
	waiting           []*recvCall
}

const (
	// maxReceiving bounds recvConn.receiving.
	maxReceiving = 16
	// FreeCalls is how many open calls of a connection, or of all that are passed on, take none of the
	// memory for clients' requests for themselves. Each further one takes openCallBytes: a watch, or a
	// wait for a lock, takes about as much of goroutines, stacks and buffers.
	FreeCalls     = 2048
	OpenCallBytes = 16 << 10
)

// recvAddress is the remote address of a connection that is counted. By it a call, which is
// given it by gRPC, is known to be of that connection.
type recvAddress struct {
	net.Addr
	conn *recvConn
	text string
}

// String implements net.Addr.
func (a *recvAddress) String() string { return a.text }

// RemoteAddr implements net.Conn.
func (c *recvConn) RemoteAddr() net.Addr { return &c.address }

// recvCall is a call that is counted.
type recvCall struct {
	// conn is nil if another server passes the call on.
	conn *recvConn
	// principal is charged for the call.
	principal string
	// throttle is that of the connection, or the call's own if it is passed on; nil without.
	throttle *ConnThrottle
	// served is closed when the call may receive. It is nil for a call that need not wait.
	served chan struct{}
	// receives: it is one of conn.receiving; waits: it is one of conn.waiting. in.mu guards them.
	receives, waits bool
}

// callOf is the counted call of a context: that of a client, or one that another server passes on
// for a client. nil: the call is not counted.
func (in *RecvBudget) callOf(ctx context.Context) *recvCall {
	if c := recvConnOf(ctx); c != nil {
		return &recvCall{conn: c, principal: authn.PrincipalOfCall(ctx), throttle: c.throttle}
	}
	if in.PassedOn == nil {
		return nil
	}
	principal, ok := in.PassedOn(ctx)
	if !ok {
		return nil
	}
	if principal == "" {
		principal = authn.PrincipalOfCall(ctx)
	}
	call := &recvCall{principal: principal}
	if in.CPU != nil {
		call.throttle = &ConnThrottle{cpu: in.CPU, of: principal}
	}
	return call
}

// charge charges the principal of a call that is passed on for a message, and waits if the
// principal has to pause. Of other calls the connection pays and waits, when it is read.
func (in *RecvBudget) charge(ctx context.Context, call *recvCall, bytes int64) {
	if call.throttle == nil {
		return
	}
	call.throttle.charge(costOfMessage + time.Duration(bytes)*costOfCallByte)
	if call.throttle.unverified.Load() { // not to the server that passes the call on
		call.throttle.Use()
		return
	}
	wait := time.Duration(call.throttle.delay.Swap(0))
	if wait <= 0 {
		return
	}
	in.Paused(wait)
	_ = backoff.Sleep(ctx, wait)
}

// mayReceiveLocked says whether another call of a connection may receive its message.
func (in *RecvBudget) mayReceiveLocked(c *recvConn) bool {
	return c.receiving == 0 || c.receiving < maxReceiving && in.total < in.Limit/2
}

// begin notes that a call has begun, whose end is noted whatever begin returns. A call of one
// message waits until it may receive that, or has ended. A call beside many others, of the
// connection or of those that are passed on, is refused if there is no memory for it.
func (in *RecvBudget) begin(
	ctx context.Context, call *recvCall, one bool, memory *messageMemory,
) error {
	c, calls := call.conn, &in.passing
	if c != nil {
		calls = &c.calls
	}
	in.mu.Lock()
	if *calls++; *calls > FreeCalls {
		in.mu.Unlock()
		if !memory.takeCall() {
			call.throttle.penalize(penaltyOfCall)
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
func (in *RecvBudget) received(ctx context.Context, call *recvCall, bytes int64) {
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
func (in *RecvBudget) end(call *recvCall) {
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

func (in *RecvBudget) takeOutLocked(c *recvConn, bytes int64) {
	if c.counted {
		bytes = min(c.incomplete, bytes)
		c.incomplete -= bytes
		in.total -= bytes
	}
}

// receivedLocked is for when a call has its message, or has ended.
func (in *RecvBudget) receivedLocked(call *recvCall) {
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

// Watch counts a connection of gRPC from now on, which has been made of raw.
func (in *RecvBudget) Watch(conn, raw net.Conn) net.Conn {
	throttle := ThrottleOf(raw)
	if throttle != nil {
		throttle.calls.Store(true)
	}
	c := &recvConn{Conn: conn, in: in, throttle: throttle, counted: true,
		frames: frames{skip: len(http2.ClientPreface)}}
	c.address = recvAddress{conn.RemoteAddr(), c, conn.RemoteAddr().String()}
	in.mu.Lock()
	defer in.mu.Unlock()
	if before := in.conns[c.address.text]; before != nil {
		in.forgetLocked(before) // it is gone, or the address is no port's (package memnet)
	}
	in.conns[c.address.text] = c
	return c
}

// Read implements net.Conn.
func (c *recvConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.in.ReceivedBytes != nil {
		c.in.ReceivedBytes.Add(float64(n))
	}
	content := c.frames.content(b[:n])
	if content == 0 {
		return n, err
	}
	in := c.in
	var largest *recvConn
	large := false
	in.mu.Lock()
	if c.counted {
		c.incomplete += content
		large = c.incomplete > largeIncomplete
		in.total += content
		if in.total > in.Limit {
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
		in.Closed()
		_ = largest.Conn.Close()
	}
	if large {
		c.throttle.penalize(time.Duration(content) * penaltyOfByte)
		c.throttle.Rest()
	}
	return n, err
}

// Write implements net.Conn.
func (c *recvConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.in.SentBytes != nil {
		c.in.SentBytes.Add(float64(n))
	}
	return n, err
}

// Close implements net.Conn.
func (c *recvConn) Close() error {
	c.in.mu.Lock()
	c.in.forgetLocked(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}

func (in *RecvBudget) forgetLocked(c *recvConn) {
	if c.counted {
		delete(in.conns, c.address.text)
		c.counted = false
		in.total -= c.incomplete
	}
}

// recvConnOf is the connection of a call; nil if it is not counted.
func recvConnOf(ctx context.Context) *recvConn {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if address, ok := from.Addr.(*recvAddress); ok {
		return address.conn
	}
	return nil
}

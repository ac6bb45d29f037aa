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

// gRPC receives a message of a call, up to the largest size of any method, before it decodes or
// checks anything, on each of a connection's streams. So the bytes of incomplete messages are
// counted for all connections of clients together. If they exceed defaultRecvBytes, the connection
// with most of them is closed, which frees them.
//
// A connection is charged for the bytes read in DATA frames, less the messages that were completed.
// If a call is given up, the bytes of its message stay charged until no call is open on the
// connection.
//
// A complete message counts with its decoded size, from before it is decoded until the call is
// over, or until the next message of a stream (request_memory.go).
//
// A well-behaved client does not reach the limit, however many calls it makes at a time. Before a
// call is served, the window of its stream bounds the bytes that the client can send. Once the call
// is served, gRPC grants the whole message. So of each connection only some calls that have not
// sent their message yet are served at a time, and only one while much is incomplete. The others
// wait, and HTTP/2's flow control makes their client wait too. Streaming calls do not wait, because
// they may never send a large message.
//
// Connections of servers are not counted, so a client could send through another server what this
// one would refuse. Therefore a call that a server passes on for a client counts, with the memory
// and the processor time of its message, for the principal that the server names (callOf). Calls of
// the servers themselves never count. Incomplete messages of calls that are passed on do not count
// either: the server that passes them on bounds them.
//
// Calls are counted by an interceptor and where services are registered (recv_calls.go). For a
// stats.Handler gRPC would collect far more, which takes about a seventh of the server's time for a
// small call.

// defaultRecvBytes bounds the bytes of incomplete messages.
const defaultRecvBytes = 256 << 20

// RecvConfig configures a RecvBudget.
type RecvConfig struct {
	// Limit bounds the bytes of incomplete messages; 0: defaultRecvBytes. Closed is called for each
	// connection closed because of the limit.
	Limit  int64
	Closed func()
	// ReceivedBytes and SentBytes count the bytes on connections of gRPC; nil: they are not
	// counted.
	ReceivedBytes, SentBytes *metric.Counter
	// Memory is the budget of complete messages.
	Memory *RequestMemory
	// PassedOn reports whether a server passes a call on for a client, and for which principal;
	// nil: no call is passed on. CPU, if not nil, limits the principals of such calls, and Paused
	// is called for each wait.
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
	// passing counts the open calls that are passed on.
	passing int64
}

func NewRecvBudget(c RecvConfig) *RecvBudget {
	if c.Limit <= 0 {
		c.Limit = defaultRecvBytes
	}
	return &RecvBudget{RecvConfig: c, conns: make(map[string]*recvConn)}
}

// recvConn is a counted connection.
type recvConn struct {
	net.Conn
	in *RecvBudget
	// throttle is nil without a limiter.
	throttle *ConnThrottle
	address  recvAddress
	// frames belongs to the goroutine that reads.
	frames frames
	// counted is set while the connection is in in.conns. incomplete counts the bytes of incomplete
	// messages, and calls the open calls. receiving counts the served calls whose message has not
	// come, and waiting holds the calls that wait to be served. in.mu guards these.
	counted           bool
	incomplete, calls int64
	receiving         int
	waiting           []*recvCall
}

const (
	// maxReceiving bounds recvConn.receiving.
	maxReceiving = 16
	// FreeCalls is how many open calls of a connection, or of all that are passed on, take no
	// memory of the budget for themselves. Each further call takes openCallBytes, about the
	// goroutines, stacks and buffers of a watch or of a wait for a lock.
	FreeCalls     = 2048
	OpenCallBytes = 16 << 10
)

// recvAddress is the remote address of a counted connection. gRPC passes it to calls, which find
// their connection by it.
type recvAddress struct {
	net.Addr
	conn *recvConn
	text string
}

// String implements net.Addr.
func (a *recvAddress) String() string { return a.text }

// RemoteAddr implements net.Conn.
func (c *recvConn) RemoteAddr() net.Addr { return &c.address }

// recvCall is a counted call.
type recvCall struct {
	// conn is nil if another server passes the call on.
	conn *recvConn
	// principal is charged for the call.
	principal string
	// throttle is the connection's, or the call's own if it is passed on; nil without a limiter.
	throttle *ConnThrottle
	// served is closed when the call may receive its message. It is nil for a call that need not
	// wait.
	served chan struct{}
	// receives is set while the call counts in conn.receiving, waits while it is in conn.waiting.
	// in.mu guards both.
	receives, waits bool
}

// callOf returns the counted call of a context: one of a client, or one that another server passes
// on for a client. nil: the call is not counted.
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
// principal must pause. Other calls are charged when their connection is read.
func (in *RecvBudget) charge(ctx context.Context, call *recvCall, bytes int64) {
	if call.throttle == nil {
		return
	}
	call.throttle.charge(costOfMessage + time.Duration(bytes)*costOfCallByte)
	if call.throttle.unverified.Load() { // not the server that passes the call on
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

// mayReceiveLocked reports whether another call of a connection may receive its message.
func (in *RecvBudget) mayReceiveLocked(c *recvConn) bool {
	return c.receiving == 0 || c.receiving < maxReceiving && in.total < in.Limit/2
}

// begin notes that a call has begun. The caller must call end whatever begin returns. A call with
// one message waits until it may receive the message, or has ended. Beyond FreeCalls a call is
// refused if there is no memory for it.
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

// received notes a complete message of so many bytes. It may pause the call.
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
		in.takeOutLocked(c, c.incomplete) // bytes of calls that were given up
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

// receivedLocked notes that a call has its message, or has ended.
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

// Watch counts the gRPC connection conn, made from raw, from now on.
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

// recvConnOf returns the connection of a call; nil if it is not counted.
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

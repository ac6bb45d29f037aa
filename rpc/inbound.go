package rpc

import (
	"context"
	"net"
	"slices"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"
)

// gRPC takes in a message of a call before anything of it is decoded or checked, up to the largest
// size that any method has, on each of a connection's streams. So the bytes of messages that are
// not complete are counted for all connections of clients together; when they are more than
// maxInbound, the connection with most of them is closed, which frees them.
//
// What is counted of a connection is what was read of it in DATA frames, less the messages that have
// come out. What a call had sent of a message when it was given up stays in that account until no
// call is open on the connection.
//
// A client that is well-behaved does not come to that, however many calls it makes at a time. What
// it sends of a call before that is served is bounded by the window of a stream. From when a call is
// served gRPC grants it all of its message; so of each connection only some calls are served that
// have not sent their message yet, and only one while much is incomplete. The others wait, and by
// HTTP/2's flow control their client waits with them. Calls that go on sending, which may never send
// a large message, do not wait.

// maxInbound bounds the bytes of incomplete messages.
const maxInbound = 256 << 20

// inbound counts them. It is gRPC's stats.Handler.
type inbound struct {
	limit  int64
	closed func()

	mu    sync.Mutex
	total int64
	conns map[string]*inboundConn // by remote address
}

func newInbound(limit int64, closed func()) *inbound {
	return &inbound{limit: limit, closed: closed, conns: make(map[string]*inboundConn)}
}

// inboundConn is a connection that is counted.
type inboundConn struct {
	net.Conn
	in  *inbound
	key string
	// frames is for the one goroutine that reads.
	frames frames
	// incomplete is how many bytes of incomplete messages there are, and calls how many calls are open.
	// receiving is how many calls are served whose message is awaited, and waiting are those that wait
	// to be. in.mu guards them.
	incomplete, calls int64
	receiving         int
	waiting           []*inboundCall
}

// maxReceiving bounds inboundConn.receiving.
const maxReceiving = 16

// inboundCall is a call of one message.
type inboundCall struct {
	conn *inboundConn
	// served is closed when the call may receive. It is nil for a call that need not wait.
	served chan struct{}
	// receives: it is one of conn.receiving. in.mu guards it.
	receives bool
}

// mayReceiveLocked says whether another call of a connection may receive its message.
func (in *inbound) mayReceiveLocked(c *inboundConn) bool {
	return c.receiving == 0 || c.receiving < maxReceiving && in.total < in.limit/2
}

// begin returns when a call may receive its message, or has ended.
func (in *inbound) begin(ctx context.Context, call *inboundCall) {
	c := call.conn
	in.mu.Lock()
	if len(c.waiting) == 0 && in.mayReceiveLocked(c) {
		c.receiving++
		call.receives = true
		in.mu.Unlock()
		return
	}
	call.served = make(chan struct{})
	c.waiting = append(c.waiting, call)
	in.mu.Unlock()
	select {
	case <-call.served:
	case <-ctx.Done():
	}
}

// receivedLocked is for when a call has its message, or has ended.
func (in *inbound) receivedLocked(call *inboundCall) {
	c := call.conn
	if call.receives {
		call.receives = false
		c.receiving--
	} else if i := slices.Index(c.waiting, call); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	for len(c.waiting) > 0 && in.mayReceiveLocked(c) {
		next := c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
		c.receiving++
		next.receives = true
		close(next.served)
	}
}

// watch counts a connection from now on.
func (in *inbound) watch(conn net.Conn) net.Conn {
	c := &inboundConn{Conn: conn, in: in, key: conn.RemoteAddr().String(),
		frames: frames{skip: len(http2.ClientPreface)}}
	in.mu.Lock()
	defer in.mu.Unlock()
	if before := in.conns[c.key]; before != nil {
		in.forgetLocked(before) // it is gone, or the address is no port's (package memnet)
	}
	in.conns[c.key] = c
	return c
}

// Read implements net.Conn.
func (c *inboundConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	content := c.frames.content(b[:n])
	if content == 0 {
		return n, err
	}
	in := c.in
	var largest *inboundConn
	in.mu.Lock()
	if in.conns[c.key] == c {
		c.incomplete += content
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
	if in.conns[c.key] == c {
		delete(in.conns, c.key)
		in.total -= c.incomplete
	}
}

// TagConn implements stats.Handler.
func (in *inbound) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	in.mu.Lock()
	c := in.conns[info.RemoteAddr.String()]
	in.mu.Unlock()
	return context.WithValue(ctx, inboundKey{}, c)
}

type inboundKey struct{}

// HandleConn implements stats.Handler.
func (*inbound) HandleConn(context.Context, stats.ConnStats) {}

// TagRPC implements stats.Handler.
func (*inbound) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c, _ := ctx.Value(inboundKey{}).(*inboundConn)
	if c == nil {
		return ctx
	}
	return context.WithValue(ctx, inboundCallKey{}, &inboundCall{conn: c})
}

type inboundCallKey struct{}

// HandleRPC implements stats.Handler. The goroutine is that of the call.
func (in *inbound) HandleRPC(ctx context.Context, event stats.RPCStats) {
	call, _ := ctx.Value(inboundCallKey{}).(*inboundCall)
	if call == nil {
		return
	}
	c := call.conn
	var calls, out int64
	switch event := event.(type) {
	case *stats.Begin:
		calls = 1
	case *stats.End:
		calls = -1
	case *stats.InPayload:
		out = int64(event.WireLength)
	default:
		return
	}
	if begin, ok := event.(*stats.Begin); ok && !begin.IsClientStream {
		defer in.begin(ctx, call)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.calls += calls; c.calls == 0 && calls < 0 {
		out = c.incomplete // of calls that were given up
	}
	if in.conns[c.key] == c {
		out = min(c.incomplete, out)
		c.incomplete -= out
		in.total -= out
	}
	if calls <= 0 {
		in.receivedLocked(call)
	}
}

// doorCredentials know servers from clients when the handshake of a gRPC connection is over:
// servers' connections take no place from those of hosts, and are not counted.
type doorCredentials struct {
	credentials.TransportCredentials
	policy *PeerPolicy
	in     *inbound
}

// Clone implements credentials.TransportCredentials.
func (d doorCredentials) Clone() credentials.TransportCredentials {
	return doorCredentials{d.TransportCredentials.Clone(), d.policy, d.in}
}

// ServerHandshake implements credentials.TransportCredentials.
func (d doorCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	if !d.policy.open() && d.policy.ofInfo(info, d.policy.judge) == nil {
		exempt(raw)
		return conn, serverInfo{info, conn}, nil
	}
	if p := paceOf(raw); p != nil {
		p.calls.Store(true)
	}
	return d.in.watch(conn), info, nil
}

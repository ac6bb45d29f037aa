package rpc

import (
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// gRPC takes in a message of a call before anything of it is decoded or checked, up to the largest
// size that any method has, on each of a connection's streams. So the bytes of messages that are
// not complete are counted for all connections of clients together; when they are more than
// maxInbound, the connection with most of them is closed, which frees them.
//
// What is counted of a connection is what was read of it in DATA frames, less the messages that
// have come out. What a call had sent of a message when it was given up stays in that account until
// no call is open on the connection. Calls are counted where services are registered
// (inbound_calls.go): for a stats.Handler gRPC collects far more, and that costs about a seventh of
// the server's time for a small call.

// maxInbound bounds the bytes of incomplete messages.
const maxInbound = 256 << 20

// inbound counts them.
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
	in      *inbound
	address inboundAddress
	// frames is for the one goroutine that reads.
	frames frames
	// calls is how many calls are open.
	calls atomic.Int64
	// counted: the connection is among in.conns. incomplete is how many bytes of incomplete messages
	// there are. in.mu guards both.
	counted    bool
	incomplete int64
}

// inboundAddress is the remote address of a connection that is counted. By it a call, which is
// given it by gRPC, is known to be of that connection.
type inboundAddress struct {
	net.Addr
	conn *inboundConn
	text string
}

// String implements net.Addr.
func (a *inboundAddress) String() string { return a.text }

// watch counts a connection from now on.
func (in *inbound) watch(conn net.Conn) net.Conn {
	c := &inboundConn{Conn: conn, in: in, frames: frames{skip: len(http2.ClientPreface)},
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

// RemoteAddr implements net.Conn.
func (c *inboundConn) RemoteAddr() net.Addr { return &c.address }

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
	if c.counted {
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

// begin notes that a call has begun.
func (c *inboundConn) begin() { c.calls.Add(1) }

// end notes that a call is over. After the last one nothing that was sent can become a message but
// of calls that come.
func (c *inboundConn) end() {
	if c.calls.Add(-1) == 0 {
		c.out(math.MaxInt64)
	}
}

// out notes that a message of so many bytes has come out.
func (c *inboundConn) out(bytes int64) {
	in := c.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if c.counted {
		bytes = min(c.incomplete, bytes)
		c.incomplete -= bytes
		in.total -= bytes
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
	if !d.policy.open() && d.policy.ofInfo(info) == nil {
		exempt(raw)
		return conn, serverInfo{info, conn}, nil
	}
	if p := paceOf(raw); p != nil {
		p.calls.Store(true)
	}
	return d.in.watch(conn), info, nil
}

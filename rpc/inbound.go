package rpc

import (
	"context"
	"net"
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
	// in.mu guards them.
	incomplete, calls int64
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
func (*inbound) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (in *inbound) HandleRPC(ctx context.Context, event stats.RPCStats) {
	c, _ := ctx.Value(inboundKey{}).(*inboundConn)
	if c == nil {
		return
	}
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

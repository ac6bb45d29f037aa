package target

import (
	"context"
	"net"
	"net/http"
	"time"
)

// dialer opens a connection to an address.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

const (
	dialTimeout = 10 * time.Second
	// idleConnections is the number of idle connections that are kept for later requests.
	idleConnections = 16
)

// newTransport returns the HTTP transport of one target. A connection breaks when it makes no
// progress for the stall timeout. The transport speaks HTTP/1.1, because large requests gain
// nothing from sharing a connection.
func newTransport(stall time.Duration, dial dialer) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &stallConn{Conn: conn, timeout: stall}, nil
		},
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConns:        idleConnections,
		MaxIdleConnsPerHost: idleConnections,
		// An idle connection is closed before the stall timeout would break it.
		IdleConnTimeout:    stall / 2,
		DisableCompression: true,
	}
}

// stallConn is a connection that breaks when nothing is read or written for a time. Progress in one
// direction extends the deadline of the other direction, too: while a large object is being
// written, there is nothing to read for a long time.
type stallConn struct {
	net.Conn
	timeout time.Duration
}

// Read implements net.Conn.
func (c *stallConn) Read(b []byte) (int, error) {
	if err := c.extend(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		_ = c.extend()
	}
	return n, err
}

// Write implements net.Conn. It splits a large write into steps, so that each step gets the whole
// timeout.
func (c *stallConn) Write(b []byte) (written int, err error) {
	const step = 64 << 10
	for {
		if err = c.extend(); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(b[written:min(len(b), written+step)])
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

func (c *stallConn) extend() error { return c.Conn.SetDeadline(time.Now().Add(c.timeout)) }

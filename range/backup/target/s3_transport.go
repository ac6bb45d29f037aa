package target

import (
	"context"
	"net"
	"net/http"
	"time"
)

// dialer connects to an address.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

const (
	dialTimeout = 10 * time.Second
	// idleConnections is how many connections are kept for the next requests.
	idleConnections = 16
)

// newTransport returns the HTTP client of one target. Its connections break when they make no
// progress for a time. It speaks HTTP/1.1: requests with much content gain nothing from sharing a
// connection.
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
		// An idle connection goes before the stall timeout would break it.
		IdleConnTimeout:    stall / 2,
		DisableCompression: true,
	}
}

// stallConn is a connection that breaks when nothing is read or written for a time. A read or write
// that succeeds gives the other direction new time, too: while a large object is written, nothing
// is read for long.
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

// Write implements net.Conn. Large writes go in steps, so that each step gets the whole time.
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

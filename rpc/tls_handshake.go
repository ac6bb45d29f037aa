package rpc

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

// lingering bounds how long a refused connection is kept after the refusal was written, and
// lingeringBytes what is read from it meanwhile. If the server closed it at once, with bytes of the
// client unread, the kernel would reset the connection, and the client could see the reset before
// it has read why.
const (
	lingering      = 500 * time.Millisecond
	lingeringBytes = 64 << 10
)

// tlsCredentials tells a client why its handshake failed. A client that speaks HTTP/2 without TLS
// is answered with a GOAWAY frame (INADEQUATE_SECURITY); a client that shows no certificate, or one
// that is refused, gets to read the alert that says so.
type tlsCredentials struct {
	credentials.TransportCredentials
}

// Clone implements credentials.TransportCredentials.
func (c tlsCredentials) Clone() credentials.TransportCredentials {
	return tlsCredentials{c.TransportCredentials.Clone()}
}

// ServerHandshake implements credentials.TransportCredentials. gRPC has set a deadline, and takes
// it away afterwards.
func (c tlsCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	held := &handshakeConn{Conn: raw}
	conn, info, err := c.TransportCredentials.ServerHandshake(held)
	held.over.Store(true)
	if err == nil {
		return conn, info, nil
	}
	var header tls.RecordHeaderError
	if errors.As(err, &header) && string(header.RecordHeader[:3]) == http2.ClientPreface[:3] {
		_ = http2.NewFramer(raw, nil).WriteGoAway(0, http2.ErrCodeInadequateSecurity, []byte("TLS is required"))
	}
	held.refuse()
	return nil, nil, err
}

// handshakeConn is a connection that is not closed while its handshake goes on: the credentials
// close it when that fails, and then there is something to be said yet.
type handshakeConn struct {
	net.Conn
	over atomic.Bool
}

// Close implements net.Conn.
func (c *handshakeConn) Close() error {
	if !c.over.Load() {
		return nil
	}
	return c.Conn.Close()
}

// refuse closes the connection when the client has read what was written to it, or does not do so
// for too long.
func (c *handshakeConn) refuse() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetDeadline(time.Now().Add(lingering))
		_, _ = io.CopyN(io.Discard, c.Conn, lingeringBytes)
	}
	_ = c.Conn.Close()
}

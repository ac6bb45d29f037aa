package transport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// preface is the beginning of a connection without TLS. Its first byte begins neither HTTP/2
	// nor TLS.
	preface = "\x01tidemark 1\n"
	// Protocol is the application protocol (ALPN) of a connection with TLS.
	Protocol = "tidemark/1"
	// httpProtocol is the application protocol of HTTP/1.
	httpProtocol = "http/1.1"
)

// Takers take the connections that are not gRPC's. They own them, and must not block.
type Takers struct {
	// Take takes each connection of this package whose hello has come. nil: only gRPC is accepted.
	Take func(c *Conn, hello []byte)
	// HTTP takes the connections on which a client speaks HTTP/1: c, whose handshake is done if TLS
	// is used, over raw, the listener's connection. gRPC still sets deadlines on raw. nil: they are
	// refused.
	HTTP func(c, raw net.Conn)
}

// Credentials returns the credentials of a gRPC server whose listener takes other connections as
// well. config is nil without TLS; then openers may prove that they know the secret.
func Credentials(
	config *tls.Config, secret Secret, takers Takers,
) credentials.TransportCredentials {
	if config == nil {
		return plainCredentials{insecure.NewCredentials(), secret, takers}
	}
	protocols := []string{"h2"}
	if takers.Take != nil {
		protocols = []string{Protocol, "h2"}
	}
	if takers.HTTP != nil {
		protocols = append(protocols, httpProtocol)
	}
	config = speaking(config, protocols)
	return tlsCredentials{credentials.NewTLS(config), config, takers}
}

// speaking returns config for these protocols.
func speaking(config *tls.Config, protocols []string) *tls.Config {
	config = config.Clone()
	config.NextProtos = slices.Clone(protocols)
	config.DynamicRecordSizingDisabled = true // as in open
	if inner := config.GetConfigForClient; inner != nil {
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := inner(hello)
			if err == nil && c != nil {
				c = c.Clone()
				c.NextProtos = slices.Clone(protocols)
				c.DynamicRecordSizingDisabled = true
			}
			return c, err
		}
	}
	return config
}

// plainCredentials are the credentials of a server without TLS.
type plainCredentials struct {
	credentials.TransportCredentials
	secret Secret
	takers Takers
}

// Clone implements credentials.TransportCredentials.
func (p plainCredentials) Clone() credentials.TransportCredentials {
	return plainCredentials{p.TransportCredentials.Clone(), p.secret, p.takers}
}

// ServerHandshake implements credentials.TransportCredentials. gRPC has set a deadline, and clears
// it afterwards.
func (p plainCredentials) ServerHandshake(
	raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	if p.takers.Take == nil {
		return p.TransportCredentials.ServerHandshake(raw)
	}
	given := raw
	raw, first, err := peek(raw)
	switch {
	case err != nil:
		return nil, nil, err
	case p.takers.HTTP != nil && beginsHTTP(first):
		p.takers.HTTP(raw, given)
		return nil, nil, credentials.ErrConnDispatched
	case first[0] != preface[0]:
		return p.TransportCredentials.ServerHandshake(raw)
	}
	c := newConn(newSocket(raw), nil, nil)
	begin := make([]byte, len(preface))
	if _, err := io.ReadFull(c.reader, begin); err != nil {
		return nil, nil, err
	}
	if string(begin) != preface {
		go c.Refuse(status.Errorf(codes.Unimplemented,
			"this server speaks version 1 of the protocol, and was called with %q", begin))
		return nil, nil, credentials.ErrConnDispatched
	}
	hello, err := begins(c, p.secret)
	if err != nil {
		return nil, nil, err
	}
	if c.proved && string(hello) == grpcHello {
		if err := c.Accept(); err != nil {
			return nil, nil, err
		}
		return &readAheadConn{Conn: raw, reader: c.reader}, ProvedInfo{credentials.CommonAuthInfo{
			SecurityLevel: credentials.NoSecurity}}, nil
	}
	p.takers.Take(c, hello)
	return nil, nil, credentials.ErrConnDispatched
}

// begins reads the hello, and the proof if the opener gives one.
func begins(c *Conn, secret Secret) (hello []byte, err error) {
	content, control, err := readFrame(c.reader, nil)
	switch {
	case err == nil && control && content[0] == controlHello:
		return content[1:], nil
	case err == nil && control && content[0] == controlProve:
		hello, err = c.demand(secret, content[1:])
	case err == nil:
		err = errors.New("a connection that does not begin with hello")
	}
	if err != nil && !errors.Is(err, credentials.ErrConnDispatched) {
		_ = c.Close()
		err = fmt.Errorf("connection from %v: %w", c.RemoteAddr(), err)
	}
	return hello, err
}

// tlsCredentials tell a client why its handshake failed. A client that does not use TLS is answered
// in its protocol (HTTP/2: a GOAWAY frame, INADEQUATE_SECURITY); a client without a valid
// certificate gets the time to read the alert that says so.
type tlsCredentials struct {
	credentials.TransportCredentials
	config *tls.Config
	takers Takers
}

// Clone implements credentials.TransportCredentials.
func (t tlsCredentials) Clone() credentials.TransportCredentials {
	return tlsCredentials{t.TransportCredentials.Clone(), t.config, t.takers}
}

// ServerHandshake implements credentials.TransportCredentials. gRPC has set a deadline, and clears
// it afterwards.
func (t tlsCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s := newSocket(raw)
	held := &handshakeConn{Conn: s}
	buffered := &tlsBuffer{Conn: held}
	// gRPC's own credentials are not used: they refuse clients that ask for no application
	// protocol, as many of HTTP/1 do, and do not give access to the connection.
	over := tls.Server(buffered, t.config)
	err := over.Handshake()
	held.over.Store(true)
	if err != nil {
		answerPlain(raw, err)
		held.refuse()
		return nil, nil, err
	}
	state := over.ConnectionState()
	switch protocol := state.NegotiatedProtocol; {
	case protocol == Protocol && t.takers.Take != nil:
	case protocol == "h2":
		return over, credentials.TLSInfo{State: state, CommonAuthInfo: credentials.CommonAuthInfo{
			SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	case t.takers.HTTP != nil:
		t.takers.HTTP(over, raw)
		return nil, nil, credentials.ErrConnDispatched
	default:
		_ = over.Close()
		return nil, nil, errors.New("the client asks for no application protocol that is spoken here")
	}
	c := newConn(s, over, buffered)
	hello, err := begins(c, nil)
	if err != nil {
		return nil, nil, err
	}
	t.takers.Take(c, hello)
	return nil, nil, credentials.ErrConnDispatched
}

// answerPlain answers a client that does not use TLS.
func answerPlain(raw net.Conn, err error) {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) {
		return
	}
	switch string(header.RecordHeader[:3]) {
	case http2.ClientPreface[:3]:
		_ = http2.NewFramer(raw, nil).WriteGoAway(
			0, http2.ErrCodeInadequateSecurity, []byte(needsTLS))
	case preface[:3]:
		refusal := reason(status.Error(codes.Unavailable, needsTLS))
		_, _ = raw.Write(appendControl(nil, controlRefused, refusal))
	}
}

// needsTLS is the answer to a client without TLS.
const needsTLS = "TLS is required"

// handshakeConn is a connection that cannot be closed during its handshake: the credentials close
// it when the handshake fails, but the client must still be answered.
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

// refuse closes the connection when the client has read the answer, or does not do so for too long.
func (c *handshakeConn) refuse() {
	raw := c.Conn.(*socket).Conn
	if half, ok := raw.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetDeadline(time.Now().Add(lingering))
		_, _ = io.CopyN(io.Discard, c.Conn, 64<<10)
	}
	_ = c.Conn.Close()
}

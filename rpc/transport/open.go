package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

// Open makes a connection to addr with dial, and sends hello. config is nil without TLS; then the
// secret, if there is one, is proved. Call AwaitAccepted next. Errors have the texts that gRPC
// would use.
func Open(
	ctx context.Context, dial func(ctx context.Context, addr string) (net.Conn, error),
	addr string, config *tls.Config, secret Secret, hello []byte,
) (*Conn, error) {
	if len(hello) >= maxControlBytes-numberBytes {
		return nil, fmt.Errorf("a hello of %d bytes", len(hello))
	}
	raw, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	s := newSocket(raw)
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c, err := open(ctx, s, addr, config, secret, hello)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return c, nil
}

func open(
	ctx context.Context, s *socket, addr string, config *tls.Config, secret Secret, hello []byte,
) (*Conn, error) {
	if config == nil {
		c := newConn(s, nil, nil)
		if len(secret) > 0 {
			return c, c.prove(secret, hello)
		}
		c.unsent = appendControl([]byte(preface), controlHello, hello)
		return c, c.finish()
	}
	config = config.Clone()
	config.NextProtos = []string{Protocol}
	// Records are gathered before they are written, so small ones are useless.
	config.DynamicRecordSizingDisabled = true
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
	}
	buffered := &tlsBuffer{Conn: s}
	over := tls.Client(buffered, config)
	err := over.HandshakeContext(ctx)
	if err == nil && over.ConnectionState().NegotiatedProtocol != Protocol {
		err = errors.New("missing selected ALPN property")
	}
	if err != nil {
		return nil, fmt.Errorf("authentication handshake failed: %w", err)
	}
	c := newConn(s, over, buffered)
	return c, c.sendControl(controlHello, hello)
}

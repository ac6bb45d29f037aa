package transport

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Without TLS the servers of a cluster recognize each other by a secret. The secret is never sent:
// each side makes the other one compute a code (HMAC-SHA-256, RFC 2104) over two random numbers,
// one of each side, and the hello.
//
//	opener                                     acceptor
//	prove: its number, hello                   →
//	                                           ←  challenge: its number, its code
//	proof: the opener's code                   →
//	                                           ←  accepted; or refused, with a reason
//
// The codes differ by a label, so a code cannot be sent back as the other side's. Everything
// afterwards is unencrypted: a host that can change the packets of a connection can act as the
// opener. In networks with such hosts, use TLS.

// Secret is a secret that only the servers of a cluster know. Empty: there is none.
type Secret []byte

const (
	numberBytes = 16
	codeBytes   = sha256.Size
)

// grpcHello is the hello of a connection that gRPC uses after the proof.
const grpcHello = "g"

// errNoSecret is the answer to an opener that proves a secret if the acceptor has none.
var errNoSecret = status.Error(codes.FailedPrecondition, "this server was started without a "+
	"cluster secret, and was called by a server that has one: give all servers of a cluster the "+
	"same --secret-file")

// errWrongSecret is the answer to an opener with another secret.
var errWrongSecret = status.Error(codes.PermissionDenied, "the cluster secret is not that of this "+
	"server: give all servers of a cluster the same --secret-file")

// code returns a side's answer to the other side's number.
func (s Secret) code(label string, opener, acceptor, hello []byte) []byte {
	h := hmac.New(sha256.New, s)
	for _, part := range [][]byte{[]byte("tidemark " + label), opener, acceptor, hello} {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}

func newNumber() []byte {
	number := make([]byte, numberBytes)
	_, _ = rand.Read(number) // never fails
	return number
}

// demand makes the opener of a connection prove that it knows the secret. content is the content of
// the prove frame. It returns the hello, or refuses the connection.
func (c *Conn) demand(secret Secret, content []byte) (hello []byte, err error) {
	if len(content) < numberBytes {
		return nil, errors.New("a proof without a number")
	}
	if len(secret) == 0 {
		return nil, c.refuseProof(errNoSecret)
	}
	opener, hello := content[:numberBytes], content[numberBytes:]
	acceptor := newNumber()
	if err := c.sendControl(controlChallenge,
		append(acceptor, secret.code("acceptor", opener, acceptor, hello)...)); err != nil {
		return nil, err
	}
	answer, control, err := readFrame(c.reader, nil)
	switch {
	case err != nil:
		return nil, err
	case control && answer[0] == controlRefused:
		return nil, reasonOf(answer[1:]).Err()
	case !control || answer[0] != controlProof ||
		!hmac.Equal(answer[1:], secret.code("opener", opener, acceptor, hello)):
		return nil, c.refuseProof(errWrongSecret)
	}
	c.proved = true
	return hello, nil
}

// refuseProof sends the reason, and closes the connection. The listener does not wait for that.
func (c *Conn) refuseProof(reason error) error {
	go c.Refuse(reason)
	return credentials.ErrConnDispatched
}

// prove proves to the acceptor that this side knows the secret, and makes the acceptor prove the
// same.
func (c *Conn) prove(secret Secret, hello []byte) error {
	opener := newNumber()
	c.unsent = appendControl([]byte(preface), controlProve, append(opener[:numberBytes:numberBytes],
		hello...))
	if err := c.finish(); err != nil {
		return err
	}
	answer, control, err := readFrame(c.reader, nil)
	switch {
	case err != nil:
		return status.Errorf(codes.Unavailable, "error reading server preface: %v", err)
	case control && answer[0] == controlRefused:
		return &Refused{reasonOf(answer[1:])}
	case !control || answer[0] != controlChallenge || len(answer) != 1+numberBytes+codeBytes:
		return errors.New("the other side does not prove that it knows the cluster's secret")
	}
	acceptor, theirs := answer[1:1+numberBytes], answer[1+numberBytes:]
	if !hmac.Equal(theirs, secret.code("acceptor", opener, acceptor, hello)) {
		_ = c.sendControl(controlRefused, reason(errWrongSecret))
		return fmt.Errorf("the other side has another cluster secret: %w", errWrongSecret)
	}
	return c.sendControl(controlProof, secret.code("opener", opener, acceptor, hello))
}

// Proved reports that the other side, which has opened the connection, knows the cluster's secret.
func (c *Conn) Proved() bool { return c.proved }

// ProvedInfo is gRPC's AuthInfo of a connection whose opener knows the cluster's secret.
type ProvedInfo struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (ProvedInfo) AuthType() string { return "cluster-secret" }

// ProvingCredentials returns the credentials of a gRPC client that proves to servers, without TLS,
// that it knows the cluster's secret.
func ProvingCredentials(secret Secret, plain credentials.TransportCredentials,
) credentials.TransportCredentials {
	return provingCredentials{plain, secret}
}

type provingCredentials struct {
	credentials.TransportCredentials
	secret Secret
}

// Clone implements credentials.TransportCredentials.
func (p provingCredentials) Clone() credentials.TransportCredentials {
	return provingCredentials{p.TransportCredentials.Clone(), p.secret}
}

// ClientHandshake implements credentials.TransportCredentials.
func (p provingCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (
	net.Conn, credentials.AuthInfo, error) {
	c := newConn(newSocket(raw), nil, nil)
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	err := c.prove(p.secret, []byte(grpcHello))
	if err == nil {
		err = c.AwaitAccepted()
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	_, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, raw)
	return &readAheadConn{Conn: raw, reader: c.reader}, info, err
}

// readAheadConn is a connection some of whose bytes are in a buffer already.
type readAheadConn struct {
	net.Conn
	reader interface{ Read([]byte) (int, error) }
}

// Read implements net.Conn.
func (c *readAheadConn) Read(b []byte) (int, error) { return c.reader.Read(b) }

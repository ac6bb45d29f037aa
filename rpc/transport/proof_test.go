package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// accepting runs the listener's side of one handshake on a pipe.
type accepting struct {
	taken chan *Conn
	hello chan []byte
	// ended gets what the handshake gives gRPC.
	ended chan handshake
}

type handshake struct {
	conn net.Conn
	info credentials.AuthInfo
	err  error
}

func accept(t *testing.T, raw net.Conn, secret Secret) *accepting {
	a := &accepting{taken: make(chan *Conn, 1), hello: make(chan []byte, 1),
		ended: make(chan handshake, 1)}
	of := Credentials(nil, secret, Takers{Take: func(c *Conn, hello []byte) {
		a.taken <- c
		a.hello <- hello
	}})
	go func() {
		conn, info, err := of.ServerHandshake(raw)
		a.ended <- handshake{conn, info, err}
	}()
	t.Cleanup(func() { raw.Close() })
	return a
}

var (
	ours   = Secret("0123456789abcdef")
	theirs = Secret("fedcba9876543210")
)

// TestProof: an opener is known as one that knows the secret, exactly if it does.
func TestProof(t *testing.T) {
	for _, c := range []struct {
		name             string
		opener, acceptor Secret
		proved           bool
		code             codes.Code
	}{
		{"both know it", ours, ours, true, codes.OK},
		{"the opener has none", nil, ours, false, codes.OK},
		{"neither has one", nil, nil, false, codes.OK},
		{"the acceptor has none", ours, nil, false, codes.FailedPrecondition},
		{"they have two", ours, theirs, false, codes.PermissionDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			one, other := tcpPair(t)
			a := accept(t, other, c.acceptor)
			o := newConn(newSocket(one), nil, nil)
			defer o.Close()
			var err error
			if len(c.opener) > 0 {
				err = o.prove(c.opener, []byte("hello"))
			} else {
				o.unsent = appendControl([]byte(preface), controlHello, []byte("hello"))
				err = o.finish()
			}
			if c.code != codes.OK {
				if status.Code(unwrapStatus(err)) != c.code {
					t.Fatalf("the opener got %v", err)
				}
				if h := <-a.ended; h.err == nil {
					t.Fatal("the acceptor took it")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			taken := <-a.taken
			defer taken.Close()
			if hello := <-a.hello; string(hello) != "hello" || taken.Proved() != c.proved {
				t.Errorf("hello %q, proved: %t", hello, taken.Proved())
			}
		})
	}
}

// unwrapStatus finds the status in an error's chain.
func unwrapStatus(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ok := e.(interface{ GRPCStatus() *status.Status }); ok {
			return e
		}
	}
	return err
}

// tcpPair makes the two ends of a TCP connection.
func tcpPair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	one, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close() })
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return one, other
}

// TestAProofIsGoodOnce: what an eavesdropper has heard proves nothing on another connection, and
// the acceptor's own code is no answer to it.
func TestAProofIsGoodOnce(t *testing.T) {
	one, other := tcpPair(t)
	heard := &recorder{Conn: one}
	a := accept(t, other, ours)
	o := newConn(newSocket(heard), nil, nil)
	if err := o.prove(ours, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	(<-a.taken).Close()
	replays := map[string]func(c *Conn){
		"the same bytes": func(c *Conn) { c.unsent = heard.sent.Bytes() },
		"the acceptor's code": func(c *Conn) {
			c.unsent = appendControl([]byte(preface), controlProve, append(newNumber(), "hello"...))
			if err := c.finish(); err != nil {
				t.Fatal(err)
			}
			answer, _, err := readFrame(c.reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.unsent = appendControl(nil, controlProof, answer[1+numberBytes:])
		},
	}
	for name, replay := range replays {
		one, other := tcpPair(t)
		a := accept(t, other, ours)
		c := newConn(newSocket(one), nil, nil)
		replay(c)
		if err := c.finish(); err != nil {
			t.Fatal(err)
		}
		if h := <-a.ended; h.err == nil || len(a.taken) > 0 {
			t.Errorf("%s: taken, %v", name, h.err)
		}
		c.Close()
	}
}

// recorder keeps what is written.
type recorder struct {
	net.Conn
	sent bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent.Write(b)
	return r.Conn.Write(b)
}

// TestProofForGRPC: a connection of gRPC begins with the proof, and then carries what gRPC says.
func TestProofForGRPC(t *testing.T) {
	one, other := tcpPair(t)
	a := accept(t, other, ours)
	conn, _, err := ProvingCredentials(ours, insecure.NewCredentials()).ClientHandshake(t.Context(),
		"x", one)
	if err != nil {
		t.Fatal(err)
	}
	h := <-a.ended
	if _, ok := h.info.(ProvedInfo); h.err != nil || !ok {
		t.Fatalf("%T, %v", h.info, h.err)
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(h.conn, got); err != nil || string(got) != "ping" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestASecretDoesNotGoToStrangers: an opener notices that the other side does not know the secret.
func TestASecretDoesNotGoToStrangers(t *testing.T) {
	one, other := tcpPair(t)
	go func() {
		c := newConn(newSocket(other), nil, nil)
		_, _ = io.ReadFull(c.reader, make([]byte, len(preface)))
		_, _, _ = readFrame(c.reader, nil)
		_ = c.sendControl(controlChallenge, make([]byte, numberBytes+codeBytes))
	}()
	err := newConn(newSocket(one), nil, nil).prove(ours, []byte("hello"))
	if status.Code(unwrapStatus(err)) != codes.PermissionDenied {
		t.Errorf("%v", err)
	}
}

package transport

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mutual makes the configurations of a server and a client that check each other.
func mutual(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	server = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	client = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		RootCAs: pool}
	return server, client
}

// listen runs what a gRPC server does with new connections, and gives those that are not gRPC's.
func listen(t testing.TB, config *tls.Config) (addr string, taken <-chan *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan *Conn, 10)
	handshake := Credentials(config, nil, Takers{Take: func(c *Conn, hello []byte) {
		if string(hello) != "hello" {
			t.Errorf("hello %q", hello)
		}
		conns <- c
	}})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				_ = raw.SetDeadline(time.Now().Add(10 * time.Second))
				conn, _, err := handshake.ServerHandshake(raw)
				_ = raw.SetDeadline(time.Time{})
				if err == nil {
					_ = conn.Close()
				} else if !errors.Is(err, credentials.ErrConnDispatched) {
					_ = raw.Close()
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String(), conns
}

func dial(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// pairs makes two ends of a connection of each kind.
func pairs(t *testing.T, test func(t *testing.T, opener, acceptor *Conn)) {
	server, client := mutual(t)
	for name, config := range map[string][2]*tls.Config{"plain": {}, "TLS": {server, client}} {
		t.Run(name, func(t *testing.T) {
			addr, taken := listen(t, config[0])
			opener, err := Open(t.Context(), dial, addr, config[1], nil, []byte("hello"))
			if err != nil {
				t.Fatal(err)
			}
			acceptor := <-taken
			defer opener.Close()
			defer acceptor.Close()
			test(t, opener, acceptor)
		})
	}
	t.Run("pipe", func(t *testing.T) {
		a, b := Pipe()
		defer a.Close()
		defer b.Close()
		test(t, a, b)
	})
}

// Messages come out as they went in, whatever pieces the connection makes of them, in both
// directions and with control frames between them.
func TestMessagesPass(t *testing.T) {
	pairs(t, func(t *testing.T, opener, acceptor *Conn) {
		var sizes []int
		for range 30 {
			sizes = append(sizes, 0, 1, 5, 3000, 70_000, 3<<20)
		}
		send := func(c *Conn) error {
			for i, size := range sizes {
				message := bytes.Repeat([]byte{byte(i)}, size)
				parts := [][]byte{message[:size/3], message[size/3:]}
				var err error
				if i%2 == 0 {
					err = c.Send(parts...)
				} else {
					_, err = c.TrySend(parts...)
					err = errors.Join(err, c.Send()) // the rest
				}
				if i%5 == 0 {
					err = errors.Join(err, c.SendKeepalive())
				}
				if err != nil {
					return err
				}
			}
			return c.CloseSend()
		}
		receive := func(c *Conn) error {
			for i, size := range sizes {
				got, err := c.Receive()
				if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, size)) {
					return fmt.Errorf("message %d of %d bytes: %d bytes, %w", i, size, len(got), err)
				}
			}
			if _, err := c.Receive(); !errors.Is(err, io.EOF) {
				return fmt.Errorf("after the last: %w", err)
			}
			return nil
		}
		errs := make(chan error, 4)
		accepted := make(chan struct{})
		go func() {
			err := acceptor.Accept()
			close(accepted)
			errs <- errors.Join(err, send(acceptor))
		}()
		go func() { <-accepted; errs <- receive(acceptor) }()
		go func() { errs <- send(opener) }()
		go func() { errs <- errors.Join(opener.AwaitAccepted(), receive(opener)) }()
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// A direct send does not block when the other side does not read.
func TestTrySendDoesNotBlock(t *testing.T) {
	pairs(t, func(t *testing.T, opener, acceptor *Conn) {
		message := make([]byte, 8<<20)
		done, err := opener.TrySend(message)
		if done || err != nil {
			t.Fatalf("all of %d bytes were written, %v", len(message), err)
		}
		sent := make(chan error, 1)
		go func() { sent <- opener.Send([]byte("next")) }()
		for _, want := range []int{len(message), 4} {
			if got, err := acceptor.Receive(); err != nil || len(got) != want {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	})
}

// The other side hears why it was refused, or why a connection ended, also if it has sent what
// was not read.
func TestReasonsArrive(t *testing.T) {
	for _, accept := range []bool{false, true} {
		pairs(t, func(t *testing.T, opener, acceptor *Conn) {
			go func() { _ = opener.Send(make([]byte, 100_000)) }()
			go func() {
				if accept {
					_ = acceptor.Accept()
					acceptor.End(status.Error(codes.Aborted, "for a reason"))
				} else {
					acceptor.Refuse(status.Error(codes.Aborted, "for a reason"))
				}
			}()
			err := opener.AwaitAccepted()
			var refused *Refused
			if accept && err == nil {
				_, err = opener.Receive()
			}
			if errors.As(err, &refused) == accept || status.Code(err) != codes.Aborted ||
				status.Convert(err).Message() != "for a reason" {
				t.Fatal(err)
			}
		})
	}
}

// TestReasonsOutliveWrites: a side whose write fails still reads why the other side has ended the
// connection.
func TestReasonsOutliveWrites(t *testing.T) {
	pairs(t, func(t *testing.T, opener, acceptor *Conn) {
		tcp, ok := acceptor.Raw().(*net.TCPConn)
		if !ok {
			t.Skip("a pipe loses unread bytes")
		}
		if err := acceptor.sendControl(controlEnded,
			reason(status.Error(codes.Aborted, "for a reason"))); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tcp.SetLinger(0), acceptor.Close()); err != nil { // a reset
			t.Fatal(err)
		}
		for opener.Send([]byte("more")) == nil {
		}
		if err := opener.Send(); err == nil {
			t.Error("a message after a failed write was sent")
		}
		if _, err := opener.TrySend([]byte("more")); err == nil {
			t.Error("a message after a failed write was sent")
		}
		if _, err := opener.Receive(); status.Convert(err).Message() != "for a reason" {
			t.Error(err)
		}
	})
}

// lingeringConn is a connection on which nothing arrives. over is set while its deadline for reads
// has passed.
type lingeringConn struct {
	net.Conn
	over bool
}

func (c *lingeringConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *lingeringConn) CloseWrite() error           { return nil }
func (c *lingeringConn) Close() error                { return nil }
func (c *lingeringConn) Read([]byte) (int, error)    { return 0, io.EOF }

func (c *lingeringConn) SetReadDeadline(d time.Time) error {
	c.over = !d.IsZero()
	return nil
}

// TestInterruptLeavesAnEnd: an interruption does not end the wait for the other side, which has not
// read the reason yet.
func TestInterruptLeavesAnEnd(t *testing.T) {
	raw := new(lingeringConn)
	c := newConn(newSocket(raw), nil, nil)
	c.End(status.Error(codes.Aborted, "for a reason"))
	c.Interrupt(status.Error(codes.Unavailable, "going"))
	if raw.over {
		t.Error("the interruption has ended the wait")
	}
}

// An interrupted receiver gets the reason, and the connection can still tell the other side.
func TestInterrupt(t *testing.T) {
	pairs(t, func(t *testing.T, opener, acceptor *Conn) {
		ended := make(chan error, 1)
		go func() {
			_ = acceptor.Accept()
			_, err := acceptor.Receive()
			acceptor.End(err)
			ended <- err
		}()
		if err := opener.AwaitAccepted(); err != nil {
			t.Fatal(err)
		}
		acceptor.Interrupt(status.Error(codes.Unavailable, "going"))
		if _, err := opener.Receive(); status.Convert(err).Message() != "going" {
			t.Fatal(err)
		}
		_ = opener.Close()
		if err := <-ended; status.Convert(err).Message() != "going" {
			t.Fatal(err)
		}
	})
}

// What is too large, cut short or unknown ends the connection.
func TestBadFrames(t *testing.T) {
	for _, raw := range [][]byte{
		binary.LittleEndian.AppendUint32(nil, MaxMessageBytes+1),
		binary.LittleEndian.AppendUint32(nil, 40<<20),
		binary.LittleEndian.AppendUint32(nil, controlBit),
		binary.LittleEndian.AppendUint32(nil, controlBit|(maxControlBytes+1)),
		appendControl(nil, '?', nil),
		{1, 0},
		{},
	} {
		a, b := net.Pipe()
		go func() {
			_, _ = b.Write(raw)
			_ = b.Close()
		}()
		c := newConn(newSocket(a), nil, nil)
		if _, err := c.Receive(); status.Code(err) != codes.Unavailable {
			t.Errorf("%x: %v", raw, err)
		}
		_ = c.Close()
	}
}

// Without TLS and with it, or the other way round, both sides hear what is wrong.
func TestTLSIsNotMixed(t *testing.T) {
	server, client := mutual(t)
	secure, _ := listen(t, server)
	c, err := Open(t.Context(), dial, secure, nil, nil, []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var refused *Refused
	if err := c.AwaitAccepted(); !errors.As(err, &refused) ||
		status.Convert(err).Message() != needsTLS {
		t.Fatal(err)
	}
	plain, _ := listen(t, nil)
	if _, err := Open(t.Context(), dial, plain, client, nil, []byte("hello")); err == nil {
		t.Fatal("TLS with a server that has none")
	}
	// A client without a certificate gets no further than its handshake.
	anonymous := client.Clone()
	anonymous.Certificates = nil
	c, err = Open(t.Context(), dial, secure, anonymous, nil, []byte("hello"))
	if err == nil {
		defer c.Close()
		err = c.AwaitAccepted()
	}
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("certificate required")) {
		t.Fatal(err)
	}
}

// A server of another version of the protocol says so.
func TestOtherVersionIsRefused(t *testing.T) {
	addr, _ := listen(t, nil)
	raw, err := dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(newSocket(raw), nil, nil)
	defer c.Close()
	c.unsent = append([]byte("\x01tidemark 2\n"), make([]byte, 50)...)
	if err := c.finish(); err != nil {
		t.Fatal(err)
	}
	if err := c.AwaitAccepted(); status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
}

// What TLS wants to send by itself, between two messages, is bounded.
func TestSealBoundsWhatIsUnasked(t *testing.T) {
	s := &tlsBuffer{buffering: true}
	record := make([]byte, 1000)
	for range maxUnasked / len(record) {
		if _, err := s.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Write(record); !errors.Is(err, errUnasked) {
		t.Fatal(err)
	}
}

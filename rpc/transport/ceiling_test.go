package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// BenchmarkCeiling measures in processor time what TLS costs beside plain bytes, with bytes of the
// sizes that messages have: a bare TCP connection, crypto/tls upon one, and a Conn of each kind. An
// operation is a request to the other side, in the same process, and its answer; the processor time
// is that of both sides. The first two say which ratio is possible.
func BenchmarkCeiling(b *testing.B) {
	defer likeServer()()
	server, client := mutual(b)
	for _, size := range []struct {
		name            string
		request, answer int
	}{
		{"get", 70, 310},
		{"16gets", 16 * 70, 16 * 310},
		{"page", 90, 29 << 10},
		{"4pages", 4 * 90, 4 * 29 << 10},
		{"16pages", 16 * 90, 16 * 29 << 10},
	} {
		for _, kind := range []struct {
			name           string
			server, client *tls.Config
			framed         bool
		}{
			{"TCP", nil, nil, false}, {"TLS", server, client, false},
			{"Conn/plain", nil, nil, true}, {"Conn/TLS", server, client, true},
		} {
			b.Run(fmt.Sprintf("%s/%s", size.name, kind.name), func(b *testing.B) {
				var opener, acceptor exchanger
				if kind.framed {
					opener, acceptor = connPair(b, kind.server, kind.client)
				} else {
					opener, acceptor = barePair(b, kind.server, kind.client, size.request, size.answer)
				}
				measureExchanges(b, opener, acceptor, size.request, size.answer)
			})
		}
	}
}

// exchanger is a side of a connection. receive takes in one message of the other side.
type exchanger struct {
	send    func(message []byte) error
	receive func() error
	close   func() error
}

// connPair makes both sides of a Conn, accepted.
func connPair(b *testing.B, server, client *tls.Config) (opener, acceptor exchanger) {
	addr, taken := listen(b, server)
	o, err := Open(b.Context(), dial, addr, client, nil, []byte("hello"))
	if err != nil {
		b.Fatal(err)
	}
	a := <-taken
	if err := a.Accept(); err != nil {
		b.Fatal(err)
	}
	if err := o.AwaitAccepted(); err != nil {
		b.Fatal(err)
	}
	return connExchanger(o), connExchanger(a)
}

func connExchanger(c *Conn) exchanger {
	return exchanger{
		send: func(message []byte) error {
			done, err := c.TrySend(message)
			if err == nil && !done {
				err = c.Send()
			}
			return err
		},
		receive: func() error { _, err := c.Receive(); return err },
		close:   c.Close,
	}
}

// barePair makes both sides of a connection without frames: each knows how much is to come.
func barePair(
	b *testing.B, server, client *tls.Config, request, answer int,
) (opener, acceptor exchanger) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	o, err := dial(context.Background(), l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	if server != nil {
		client = client.Clone()
		client.ServerName = "127.0.0.1"
		client.DynamicRecordSizingDisabled = true
		server = server.Clone()
		server.DynamicRecordSizingDisabled = true
		a, o = tls.Server(a, server), tls.Client(o, client)
	}
	return bareExchanger(o, answer), bareExchanger(a, request)
}

func bareExchanger(c net.Conn, size int) exchanger {
	buffer := make([]byte, size)
	return exchanger{
		send:    func(message []byte) error { _, err := c.Write(message); return err },
		receive: func() error { _, err := io.ReadFull(c, buffer); return err },
		close:   c.Close,
	}
}

// measureExchanges runs b.N exchanges, and closes both sides.
func measureExchanges(b *testing.B, opener, acceptor exchanger, request, answer int) {
	asked, answered := make([]byte, request), make([]byte, answer)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for acceptor.receive() == nil && acceptor.send(answered) == nil {
		}
	}()
	exchange := func() {
		if err := opener.send(asked); err != nil {
			b.Fatal(err)
		}
		if err := opener.receive(); err != nil {
			b.Fatal(err)
		}
	}
	exchange() // the handshake, and the first buffers
	b.ReportAllocs()
	b.ResetTimer()
	began := processorTime(b)
	for range b.N {
		exchange()
	}
	b.ReportMetric(float64((processorTime(b)-began).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
	b.StopTimer()
	_ = opener.close()
	_ = acceptor.close()
	<-ended
}

// likeServer has garbage collected as seldom as in a server, until the function that it returns is
// called.
func likeServer() func() {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(400<<20)
	return func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}
}

// processorTime is what this process has had of the processors.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

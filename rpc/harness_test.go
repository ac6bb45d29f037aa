package rpc

import (
	"context"
	"crypto/x509"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Those of package limit.
const leastPieceBytes, mostPieceBytes, spare = 4 << 10, 64 << 10, 4

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is where a test's servers listen: TCP when mem is nil; without TLS when tls is nil.
type network struct {
	mem *memnet.Network
	tls *authn.TLSFiles
}

// networks are all that a test of a connection should run over.
func networks(t testing.TB) []network {
	t.Helper()
	a := newAuthority(t)
	a.sign(t, "host", &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"s", "c", "h1", "h2"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	files, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: a.path("host.crt"),
		Key: a.path("host.key"),
		CA:  a.path("ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	return []network{{}, {mem: memnet.New()}, {tls: files}, {mem: memnet.New(), tls: files}}
}

// serve runs a server until the test's end, and gives its address and what stops it.
func (n network) serve(t testing.TB, addr string, register func(s *Server)) (string, func()) {
	t.Helper()
	var listener net.Listener
	var err error
	if n.mem != nil {
		listener, err = n.mem.Listen(addr)
	} else {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	var config ServerConfig
	if n.tls != nil {
		config.TLS = n.tls.Server(true)
	}
	s := NewServer(config)
	register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(listener)
	}()
	stop := func() {
		s.Stop()
		<-done
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

func (n network) dialer(t testing.TB, from string) *client.Dialer {
	t.Helper()
	var c client.DialerConfig
	if n.mem != nil {
		c.Dial = n.mem.Dialer(from)
	}
	if n.tls != nil {
		c.TLSNow = n.tls.Client
	}
	d := client.NewDialer(c)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func mustConn(t testing.TB, d *client.Dialer, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := d.Conn(addr)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// batchConn connects a new client to a batch server at addr.
func batchConn(t testing.TB, d *client.Dialer, addr string,
	change func(*client.BatchConfig)) *client.BatchConn {
	t.Helper()
	var streams atomic.Uint64
	c := client.BatchConfig{Dialer: d, Address: addr, Client: 7,
		Stream: func() uint64 { return streams.Add(1) }}
	if change != nil {
		change(&c)
	}
	b := client.NewBatchConn(c)
	t.Cleanup(b.Close)
	return b
}

func put(key string, value []byte) *kvpb.Request {
	return &kvpb.Request{Partition: 100, Generation: 1, Term: 3, Sequence: 9,
		Session: &kvpb.Timestamp{Wall: 1 << 60, Logical: 2},
		Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte(key), Value: value}}}
}

func get(key string) *kvpb.Request {
	return &kvpb.Request{Partition: 100,
		Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}}
}

// echo answers a get with its key, everything else with a version.
func echo(r *kvpb.Request) *kvpb.Response {
	response := &kvpb.Response{Id: r.Id, Now: &kvpb.Timestamp{Wall: 1 << 60}}
	if g := r.GetGet(); g != nil {
		response.Result = &kvpb.Response_Get{Get: &kvpb.GetResponse{Found: true, Value: g.Key}}
	} else {
		response.Result = &kvpb.Response_Put{
			Put: &kvpb.PutResponse{Version: &kvpb.Timestamp{Wall: 1 << 60, Logical: 1}}}
	}
	return response
}

func echoAll(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
	for _, r := range batch {
		reply(echo(r))
	}
}

func background() context.Context { return context.Background() }

func contains(err error, part string) bool {
	return err != nil && strings.Contains(err.Error(), part)
}

func counterValue(t testing.TB, c metric.Collector) (sum float64) {
	t.Helper()
	c.Collect(func(_ string, value float64) { sum += value })
	return sum
}

// helloOfClient is what a client's connection begins with.
func helloOfClient(h *kvpb.Hello) ([]byte, error) {
	b, err := (&kvpb.BatchRequest{Hello: h}).MarshalVT()
	return append([]byte{wire.HelloClient}, b...), err
}

// await waits for a condition.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in vain: ", what)
		}
	}
}

const testCluster = 0xc1

package peer

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/certs"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = 0xc1

// network is where a test's servers listen: TCP when mem is nil; without TLS when tls is nil.
type network struct {
	mem *memnet.Network
	tls *authn.TLSFiles
}

// networks are all that a test of a connection should run over.
func networks(t testing.TB) []network {
	t.Helper()
	dir := t.TempDir()
	ca, host := certs.PairOf(dir, "ca"), certs.PairOf(dir, "host")
	a, err := certs.NewAuthority(ca, "ca", time.Hour, time.Now())
	if err == nil {
		err = a.Server(host, []string{"127.0.0.1", "h1", "h2"}, time.Hour, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	files, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: host.Cert, Key: host.Key, CA: ca.Cert})
	if err != nil {
		t.Fatal(err)
	}
	return []network{{}, {mem: memnet.New()}, {tls: files}, {mem: memnet.New(), tls: files}}
}

// testServer serves the peers of one transport, as a server does among other things.
type testServer struct {
	transport *Transport
	grpc      *grpc.Server
	serving   sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	conns   map[*transport.Conn]struct{}
}

func (s *testServer) realm(name string) *Transport {
	if name != s.transport.Realm() {
		return nil
	}
	return s.transport
}

func (s *testServer) take(c *transport.Conn, hello []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = c.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.serving.Go(func() {
		if len(hello) > 0 && hello[0] == wire.HelloPeer {
			Serve(c, hello[1:], s.realm, func() {})
		} else {
			c.Refuse(status.Error(codes.Unimplemented, "only peers are served"))
		}
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
}

func (s *testServer) stop() {
	interrupt := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = true
		for c := range s.conns {
			c.Interrupt(errTransportClosed)
		}
	}
	interrupt()
	s.grpc.Stop()
	interrupt() // those that were in their handshake
	s.serving.Wait()
}

// servePeers serves the peers of a transport until the test's end, and gives the address and what
// stops it.
func (n network) servePeers(t testing.TB, addr string, of *Transport) (string, func()) {
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
	s := &testServer{transport: of, conns: make(map[*transport.Conn]struct{})}
	takers := transport.Takers{Take: s.take}
	credentials := transport.Credentials(nil, nil, takers)
	if n.tls != nil {
		credentials = transport.Credentials(n.tls.Server(true), nil, takers)
	}
	s.grpc = grpc.NewServer(grpc.Creds(credentials), grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.MaxRecvMsgSize(wire.MaxMessageBytes), grpc.WaitForHandlers(true),
		grpc.StaticStreamWindowSize(wire.LeastStreamWindow))
	peerpb.RegisterPeerServer(s.grpc, NewSnapshotServer(s.realm))
	s.serving.Go(func() { _ = s.grpc.Serve(listener) })
	t.Cleanup(s.stop)
	return listener.Addr().String(), s.stop
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

func contains(err error, part string) bool {
	return err != nil && strings.Contains(err.Error(), part)
}

func ping(wall uint64) *peerpb.HostPing { return &peerpb.HostPing{Incarnation: 1, Wall: wall} }

func counterValue(t testing.TB, c metric.Collector) (sum float64) {
	t.Helper()
	c.Collect(func(_ string, value float64) { sum += value })
	return sum
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in vain: ", what)
		}
	}
}

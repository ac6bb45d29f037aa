package rpc

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// ServerConfig configures a Server.
type ServerConfig struct {
	// TLS is nil for plain text.
	TLS *tls.Config
	// Peers says which openers are servers of the cluster; nil: all that say so.
	Peers *authn.PeerPolicy
	// MaxConnections bounds the connections of all but servers (default 4096). Hosts share them
	// (package quota): one that has its share loses one of its own for each new one.
	MaxConnections int
	// MaxStreams bounds the calls and streams that a gRPC connection has open at a time; more wait in
	// the client, which is told nothing. Default: Memory alone bounds them.
	MaxStreams uint32
	// MaxInbound bounds the bytes of messages of gRPC that are not complete, of all but servers
	// (default 256 MiB). Beyond it the connection with most of them is closed.
	MaxInbound int64
	// Memory bounds the decoded messages of gRPC calls, of all but servers. A call for which there is
	// none is refused with ResourceExhausted. Default: 1 GiB.
	Memory *limit.RequestMemory
	// PassedOn says whether a server that calls passes the call on for a client, and which party that
	// is (Principal); "" if the server, which has proved to be one, does not say. Such a call counts
	// in Memory, and is charged, for the principal of the client, or else that of the server. It is
	// asked for each call of gRPC on a connection of a server, but for methods that are for servers
	// only. nil: no call is passed on.
	PassedOn func(context.Context) (principal string, ok bool)
	// CPU limits the processor time of clients, but for servers; nil: of none. It is for TCP only.
	CPU *quota.CPULimiter
	// HTTP gets the connections on which a client speaks HTTP/1, with TLS a *tls.Conn whose handshake
	// is done. It owns them, and must not block. They keep their places, and are charged as those of
	// gRPC are, but Stop does not end them. nil: they are refused.
	HTTP func(net.Conn)
	// Registry is nil for no metrics.
	Registry metric.Registry
}

// Server answers at one address: to gRPC, and to the connections of clients and peers (package
// transport).
type Server struct {
	grpc  *grpc.Server
	peers *authn.PeerPolicy
	// places are those of connections.
	places  *quota.Places
	cpu     *quota.CPULimiter
	metrics *doorMetrics
	in      *limit.RecvBudget
	// ctx ends with Stop.
	ctx    context.Context
	cancel context.CancelFunc
	// serving counts the connections, and the end of gRPC's server that Drain has begun.
	serving  sync.WaitGroup
	draining sync.Once

	mu struct {
		sync.Mutex
		stopped bool
		clients *BatchServer
		realms  map[string]*peer.Transport
		conns   map[*transport.Conn]struct{}
	}
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// errServerStops is what connections hear that a server ends.
var errServerStops = status.Error(codes.Unavailable, "this server is closing")

// NewServer makes a server.
func NewServer(c ServerConfig) *Server {
	s := &Server{peers: c.Peers, cpu: c.CPU}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.realms = make(map[string]*peer.Transport)
	s.mu.conns = make(map[*transport.Conn]struct{})
	var secret transport.Secret
	if c.Peers != nil {
		secret = c.Peers.Secret
	}
	s.metrics = newDoorMetrics(c.Registry)
	if c.Memory == nil {
		c.Memory = limit.NewRequestMemory(0)
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = maxStreamsPerConnection
	}
	s.places = limit.ConnectionPlaces(c.MaxConnections)
	inbound := limit.RecvConfig{Limit: c.MaxInbound, Closed: s.metrics.inboundClosed.Inc,
		ReceivedBytes: s.metrics.receivedBytes, SentBytes: s.metrics.sentBytes, Memory: c.Memory,
		CPU: c.CPU, Paused: s.countPause}
	if c.PassedOn != nil {
		inbound.PassedOn = func(ctx context.Context) (principal string, ok bool) {
			if method, ok := grpc.Method(ctx); !ok || authn.ForServers(method) {
				return "", false
			}
			return c.PassedOn(ctx)
		}
	}
	s.in = limit.NewRecvBudget(inbound)
	takers := transport.Takers{Take: s.take}
	if c.HTTP != nil {
		takers.HTTP = func(conn, raw net.Conn) { limit.HandOver(conn, raw, c.HTTP) }
	}
	doors := doorCredentials{transport.Credentials(c.TLS, secret, takers), c.Peers, s.in}
	options := append(serverOptions(doors), grpc.MaxConcurrentStreams(c.MaxStreams),
		grpc.ChainStreamInterceptor(s.in.CountStream))
	s.grpc = grpc.NewServer(append(options, c.Peers.ServerOptions(s.metrics.refused)...)...)
	peerpb.RegisterPeerServer(s, peer.NewSnapshotServer(s.realm))
	return s
}

// RegisterService implements grpc.ServiceRegistrar. It must be called before Serve.
func (s *Server) RegisterService(d *grpc.ServiceDesc, service any) {
	s.in.Register(s.grpc, d, service)
}

// ServeClients serves clients. It must be called before Serve.
func (s *Server) ServeClients(b *BatchServer) {
	s.mu.Lock()
	s.mu.clients = b
	s.mu.Unlock()
	kvpb.RegisterKVServer(s, &grpcBatch{clients: b})
}

// ServePeers serves the peers of the transport's realm. It may be called while the server serves.
func (s *Server) ServePeers(t *peer.Transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.realms[t.Realm()] = t
}

// realm gives the transport of a realm; nil if there is none.
func (s *Server) realm(name string) *peer.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.realms[name]
}

// Serve answers at the listener until Stop. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(limit.NewListener(l, s.places, s.cpu, s.metrics.placesLost.Inc, s.countPause))
}

func (s *Server) countPause(d time.Duration) { s.metrics.paused.Add(d.Seconds()) }

// Drain has clients of gRPC make no more calls here: it tells them so, and accepts no connection of
// any kind. Calls that are under way go on until Stop. Drain does not wait.
func (s *Server) Drain() {
	s.draining.Do(func() { s.serving.Go(s.grpc.GracefulStop) })
}

// Stop ends all connections, and waits until nothing serves them any more. It may be called again.
func (s *Server) Stop() {
	s.interrupt()
	s.cancel()
	s.grpc.Stop()
	// Again: gRPC takes the deadline away that ends a connection's handshake, and with it the first
	// interruption of a connection that was given to take just before.
	s.interrupt()
	s.serving.Wait()
}

// interrupt ends the connections that stand, and has none begin.
func (s *Server) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	for c := range s.mu.conns {
		c.Interrupt(errServerStops)
	}
}

// take is given the connections that are not gRPC's.
func (s *Server) take(c *transport.Conn, hello []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		_ = c.Close()
		return
	}
	s.mu.conns[c] = struct{}{}
	s.serving.Go(func() {
		s.serve(c, hello)
		_ = c.Close()
		s.mu.Lock()
		delete(s.mu.conns, c)
		s.mu.Unlock()
	})
}

// serve serves a connection until it ends.
func (s *Server) serve(c *transport.Conn, hello []byte) {
	var kind byte
	if len(hello) > 0 {
		kind = hello[0]
	}
	switch kind {
	case wire.HelloClient:
		s.mu.Lock()
		clients := s.mu.clients
		s.mu.Unlock()
		if clients == nil {
			c.Refuse(status.Error(codes.Unimplemented, "this server serves no clients"))
			return
		}
		first := new(kvpb.BatchRequest)
		if err := wire.UnmarshalOwned(hello[1:], first); err != nil {
			c.Refuse(status.Errorf(codes.InvalidArgument, "hello of a client: %v", err))
			return
		}
		clients.serve(s.ctx, c, first, s.originOfConn(c))
	case wire.HelloPeer:
		done, err := s.peers.AdmitConn(c)
		if err != nil {
			s.metrics.refused.Inc()
			c.Refuse(err)
			return
		}
		defer done()
		limit.CarriesPeer(c.Raw())
		if !s.peers.AcceptsAll() {
			limit.Exempt(c.Raw())
		}
		peer.Serve(c, hello[1:], s.realm, limit.ThrottleOf(c.Raw()).Use)
	default:
		c.Refuse(status.Errorf(codes.Unimplemented, "this server knows no connection of kind %q", kind))
	}
}

const (
	// maxAnswerBytes bounds a message that a server sends: what it says is bounded before, and less.
	maxAnswerBytes = 256 << 20
	// streamWorkers is how many goroutines serve calls one after the other. A new goroutine's stack
	// has to grow to what a call needs, which costs as much as many calls do. A call that finds all
	// of them busy gets a goroutine of its own.
	streamWorkers = 64
	// maxStreamsPerConnection is the default of ServerConfig.MaxStreams: no bound, as in etcd. A
	// client that waits for locks with all the streams that it may have could not release one.
	maxStreamsPerConnection = math.MaxUint32
	// handshakeTimeout is how long a new connection may take to say something sensible.
	handshakeTimeout = 5 * time.Second
	// A server pings a connection on which nothing has arrived for keepaliveTime, and closes the
	// connection if nothing arrives for keepaliveTimeout after that. The calls in flight are lost
	// then, with an unknown outcome, so a client that stands still (a pause, a starved machine)
	// has as long as with etcd. The pings also show an idle Dialer that the server lives
	// (client/liveness.go); a Dialer notices a dead server in two seconds by itself.
	keepaliveTime    = time.Second
	keepaliveTimeout = 20 * time.Second
)

// serverOptions are the options with which every gRPC server is made.
func serverOptions(transport credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(transport),
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.MaxRecvMsgSize(wire.MaxMessageBytes),
		grpc.MaxSendMsgSize(maxAnswerBytes),
		grpc.StaticStreamWindowSize(wire.LeastStreamWindow),
		grpc.StaticConnWindowSize(wire.ConnectionWindow),
		grpc.ReadBufferSize(wire.IOBuffer),
		grpc.WriteBufferSize(wire.IOBuffer),
		grpc.MaxHeaderListSize(wire.MaxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime,
			Timeout: keepaliveTimeout}),
		// Other clients' pings (a load balancer's, another language's) are welcome once a second.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second / 2,
			PermitWithoutStream: true}),
		experimental.BufferPool(wire.Buffers),
		grpc.WaitForHandlers(true), grpc.NumStreamWorkers(streamWorkers),
	}
}

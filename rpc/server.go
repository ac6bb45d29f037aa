package rpc

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"sync"
	"sync/atomic"
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
	// TLS is nil for plaintext.
	TLS *tls.Config
	// Peers decides which openers are servers of the cluster; nil: all that say so.
	Peers *authn.PeerPolicy
	// MaxConnections bounds the connections of all but servers (default 4096). Hosts share them
	// (package quota): a host that has its share loses one of its connections for each new one.
	MaxConnections int
	// MaxStreams bounds the calls and streams that a gRPC connection has open at a time. Further
	// ones wait in the client, without an error. Default: only Memory bounds them.
	MaxStreams uint32
	// MaxInbound bounds the bytes of incomplete gRPC messages, of all but servers (default 256
	// MiB). Beyond it the connection with most of them is closed.
	MaxInbound int64
	// Memory bounds the decoded messages of gRPC calls, of all but servers. A call for which there
	// is no memory is refused with ResourceExhausted. Default: 1 GiB.
	Memory *limit.RequestMemory
	// PassedOn reports whether a server makes a call on behalf of a client, and the client's
	// principal; "" if the server, which has proved to be one, does not say. Such a call counts in
	// Memory, and is charged, for the client's principal, or for the server's if that is unknown.
	// PassedOn is called for each gRPC call on a connection of a server, except for methods that
	// are for servers only. nil: no call is passed on.
	PassedOn func(context.Context) (principal string, ok bool)
	// CPU limits the processor time of clients other than servers; nil: no limit. It works for TCP
	// only.
	CPU *quota.CPULimiter
	// HTTP takes the connections on which a client speaks HTTP/1 (with TLS a *tls.Conn whose
	// handshake is done). It owns them, and must not block. They keep their places, and are charged
	// like those of gRPC, but Stop does not end them. nil: they are refused.
	HTTP func(net.Conn)
	// Registry is nil for no metrics.
	Registry metric.Registry
}

// Server answers at one address: to gRPC, and to the connections of clients and peers (package
// transport).
type Server struct {
	grpc  *grpc.Server
	peers *authn.PeerPolicy
	// places are the places of connections.
	places  *quota.Places
	cpu     *quota.CPULimiter
	metrics *doorMetrics
	in      *limit.RecvBudget
	// ctx ends with Stop.
	ctx    context.Context
	cancel context.CancelFunc
	// serving counts the connections, and the shutdown of gRPC's server that Drain has begun.
	serving  sync.WaitGroup
	draining sync.Once
	// answered is set by CallsAnswered.
	answered atomic.Bool

	mu struct {
		sync.Mutex
		stopped bool
		clients *BatchServer
		realms  map[string]*peer.Transport
		conns   map[*transport.Conn]struct{}
	}
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// errServerStops ends connections when the server stops, and errCallsNotMade if all calls of
// clients that it has made are answered.
var (
	errServerStops = status.Error(codes.Unavailable,
		"this server is closing; it may have made calls that it has not answered")
	errCallsNotMade = status.Error(codes.Unavailable, wire.CallsNotMade)
)

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

// ServePeers serves the peers of the transport's realm. It may be called while the server is
// serving.
func (s *Server) ServePeers(t *peer.Transport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.realms[t.Realm()] = t
}

// realm returns the transport of a realm; nil if there is none.
func (s *Server) realm(name string) *peer.Transport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.realms[name]
}

// Serve accepts connections until Stop. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(limit.NewListener(l, s.places, s.cpu, s.metrics.placesLost.Inc, s.countPause))
}

func (s *Server) countPause(d time.Duration) { s.metrics.paused.Add(d.Seconds()) }

// Drain tells clients of gRPC to make no further calls here, and accepts no further connection of
// any kind. Calls under way go on until Stop. Drain does not wait.
func (s *Server) Drain() {
	s.draining.Do(func() { s.serving.Go(s.grpc.GracefulStop) })
}

// CallsAnswered says that all calls of clients that were made are answered, and that no further
// call is made: CallServer.Drain was called, and then BatchServer.Drain has returned true. When the
// server stops, clients learn that calls without an answer were not made. Requests for keys that
// arrived after BatchServer.Drain had looked may have been done.
func (s *Server) CallsAnswered() { s.answered.Store(true) }

// Stop ends all connections, and waits until all are closed. It may be called again.
func (s *Server) Stop() {
	s.interrupt()
	s.cancel()
	s.grpc.Stop()
	// Interrupt again: gRPC clears the deadline of a connection's handshake, and with it the first
	// interruption of a connection that was passed to take just before.
	s.interrupt()
	s.serving.Wait()
}

// interrupt ends the open connections, and lets no further one begin.
func (s *Server) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	reason := errServerStops
	if s.answered.Load() {
		reason = errCallsNotMade
	}
	for c := range s.mu.conns {
		c.Interrupt(reason)
	}
}

// take takes the connections that do not speak gRPC.
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
	// maxAnswerBytes bounds a message that a server sends. Other limits, which are lower, bound its
	// content.
	maxAnswerBytes = 256 << 20
	// streamWorkers is how many goroutines serve calls one after the other. A new goroutine's stack
	// must grow to the size that a call needs, which costs as much as many calls. A call that finds
	// all of them busy gets a goroutine of its own.
	streamWorkers = 64
	// maxStreamsPerConnection is the default of ServerConfig.MaxStreams: no bound, as in etcd. With
	// a bound, a client that waits for locks with all its streams could not release one.
	maxStreamsPerConnection = math.MaxUint32
	// handshakeTimeout is how long a new connection may take to identify itself.
	handshakeTimeout = 5 * time.Second
	// A server pings a connection on which nothing has arrived for keepaliveTime, and closes the
	// connection if nothing arrives for keepaliveTimeout after that. The calls in flight then have
	// an unknown outcome, so a client that stalls (a pause, a starved machine) gets as much time as
	// with etcd. The pings also show an idle Dialer that the server lives (client/liveness.go); a
	// Dialer itself notices a dead server in two seconds.
	keepaliveTime    = time.Second
	keepaliveTimeout = 20 * time.Second
)

// serverOptions returns the options of every gRPC server.
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
		// Pings of other clients (load balancers, other languages) are allowed once a second.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second / 2,
			PermitWithoutStream: true}),
		experimental.BufferPool(wire.Buffers),
		grpc.WaitForHandlers(true), grpc.NumStreamWorkers(streamWorkers),
	}
}

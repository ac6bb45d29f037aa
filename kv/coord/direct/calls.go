package direct

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

const (
	// probeTimeout is how long a server has to answer the first call.
	probeTimeout = 2 * time.Second
	// After a search that found no server, there is no search during lookFirst, and then for
	// growing times up to lookMost.
	lookFirst = 100 * time.Millisecond
	lookMost  = 30 * time.Second
	// maxServers bounds the connections that are kept.
	maxServers = 16
	// connections is the number of connections to the current server. On one connection the server
	// reads calls, and the client reads answers, one after the other.
	connections = 2
	// maxInFlight bounds the calls under way on each.
	maxInFlight = 1024
)

// direct are the methods that are called past gRPC.
var direct = map[string]bool{
	pb.KV_Range_FullMethodName:              true,
	pb.KV_Put_FullMethodName:                true,
	pb.KV_DeleteRange_FullMethodName:        true,
	pb.KV_Txn_FullMethodName:                true,
	pb.Lease_LeaseGrant_FullMethodName:      true,
	pb.Lease_LeaseRevoke_FullMethodName:     true,
	pb.Lease_LeaseTimeToLive_FullMethodName: true,
}

// Config is the configuration of Calls. The zero value is for TCP without TLS.
type Config struct {
	// Dial connects to an address (host:port); nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS is that of the client of etcd; nil for plain text. Without it no endpoint with the scheme
	// https is called past gRPC.
	TLS *tls.Config
	// Token is that of the client of etcd; empty: calls show what Authenticate has answered to that
	// client itself, if it has a user.
	Token string
	// Logger logs the choice of the server; nil: nothing is logged.
	Logger *slog.Logger
}

// Calls makes the calls of one etcd client. Safe for concurrent use.
type Calls struct {
	dialer *client.Dialer
	logger *slog.Logger
	// clients and streams name the connections to servers: each is a client to these.
	clients [connections]uint64
	streams atomic.Uint64
	secure  bool
	// token is the token sent with calls: the last answer of Authenticate for the client's user;
	// nil: none.
	token atomic.Pointer[string]
	// current is the server to which calls go; nil: they go by gRPC.
	current  atomic.Pointer[server]
	counters counters

	// ctx ends with Close; running is the search for a server.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		// endpoints is nil until Begin.
		endpoints func() []string
		// user is the user of the etcd client, which authenticates before Begin; "" for none.
		user    string
		servers map[string]*server
		closed  bool
		// searched is closed when the search under way has ended; nil: there is none.
		searched chan struct{}
		// After so many failures in a row nothing is looked for until then.
		failures int
		until    time.Time
		// settled is the end of the last search that found a server or tried all endpoints.
		settled   time.Time
		addresses addresses
	}
}

// server is a server to which calls go, with its connections.
type server struct {
	address string
	conns   [connections]*client.BatchConn
	next    atomic.Uint32
	// renewing is whether it renews leases past gRPC.
	renewing renewing
}

// conn takes the connections in turn.
func (s *server) conn() *client.BatchConn { return s.conns[s.next.Add(1)%connections] }

func (s *server) close() {
	for _, conn := range s.conns {
		conn.Close()
	}
}

// New makes Calls. Before Begin all calls go by gRPC.
func New(c Config) *Calls {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	calls := &Calls{dialer: client.NewDialer(client.DialerConfig{Dial: c.Dial, TLS: c.TLS}),
		logger: c.Logger, secure: c.TLS != nil}
	if c.Token != "" {
		calls.token.Store(&c.Token)
	}
	for i := range calls.clients {
		calls.clients[i] = rand.Uint64() | 1
	}
	calls.ctx, calls.cancel = context.WithCancel(context.Background())
	calls.mu.servers = make(map[string]*server)
	calls.mu.addresses = make(addresses)
	return calls
}

// DialOptions are for the configuration of the client of etcd. Calls past gRPC carry no credentials
// that other options there add to all calls (grpc.WithPerRPCCredentials), but the token of the
// Config and that of the client's user.
func (c *Calls) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.intercept),
		grpc.WithChainStreamInterceptor(c.interceptStream)}
}

// Begin lets calls bypass gRPC from now on: they go to one of the servers at the endpoints, or to a
// server that these name as better. endpoints is called for each search for a server; the first
// call begins one. Call Begin after the etcd client was made and before it is used: a user for
// which Authenticate was called before Begin is the client's own user, and only that user's tokens
// are sent.
func (c *Calls) Begin(endpoints func() []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.endpoints = endpoints
}

// Server returns the address of the current server; "" while calls go by gRPC.
func (c *Calls) Server() string {
	if s := c.current.Load(); s != nil {
		return s.address
	}
	return ""
}

// Close ends the connections; calls and streams of renewals under way fail. Later ones go by gRPC.
func (c *Calls) Close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.current.Store(nil)
	c.cancel()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.mu.servers {
		s.close()
	}
	_ = c.dialer.Close()
}

// intercept implements grpc.UnaryClientInterceptor.
func (c *Calls) intercept(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := c.attempt(ctx, method, request, answer, conn, invoke, options...)
	note(ctx, err)
	return err
}

// attempt makes a call once, past gRPC or by gRPC.
func (c *Calls) attempt(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		err := invoke(ctx, method, request, answer, conn, options...)
		c.authenticated(request, answer, err)
		return err
	}
	q, isMessage := request.(proto.Message)
	a, takesMessage := answer.(proto.Message)
	if !direct[method] || !isMessage || !takesMessage {
		return invoke(ctx, method, request, answer, conn, options...)
	}
	o, ok := c.callOptions(ctx, options)
	if !ok {
		c.counters.grpc.Add(1)
		return invoke(ctx, method, request, answer, conn, options...)
	}
	s := c.current.Load()
	if s == nil {
		c.look()
		c.counters.grpc.Add(1)
		return invoke(ctx, method, request, answer, conn, options...)
	}
	err := c.call(ctx, s, method, q, a, o)
	if errors.Is(err, client.ErrNotCalled) {
		c.counters.grpc.Add(1)
		return invoke(ctx, method, request, answer, conn, options...)
	}
	c.counters.direct.Add(1)
	return err
}

// call calls the server.
func (c *Calls) call(ctx context.Context, s *server, method string, q, a proto.Message,
	o client.CallOptions) error {
	began := time.Now()
	better, err := s.conn().Call(ctx, method, q, a, o)
	switch {
	case err == nil:
	case errors.Is(err, client.ErrCallTooLarge):
		return err
	case errors.Is(err, client.ErrNotCalled), status.Code(err) == codes.Unavailable,
		errors.Is(err, rpctypes.ErrGRPCNotSupportedForLearner):
		// The server's connection has ended, or it cannot serve now, or it no longer has a part of
		// the store: such a server refuses writes with this error, and etcd's client repeats them.
		c.leave(s, false)
		return err
	case status.Code(err) == codes.DeadlineExceeded && time.Since(began) >= slowAfter:
		// At a leader that is cut off from the others, calls wait for longer than most callers do.
		c.leave(s, true)
		return err
	}
	if better != "" && better != s.address {
		c.lookBetter(better)
	}
	return err
}

// leave stops calling a server that does not serve, and allows a search for another one soon,
// however long earlier searches have found none. If slow, other servers are preferred to it for a
// while.
func (c *Calls) leave(s *server, slow bool) {
	left := c.current.CompareAndSwap(s, nil)
	c.mu.Lock()
	if slow {
		c.mu.addresses.noteSlow(s.address)
	}
	if left {
		c.mu.failures, c.mu.until = 0, c.mu.settled.Add(lookFirst)
	}
	c.mu.Unlock()
	if left {
		c.logger.Info("coordination is called by gRPC", "left", s.address)
	}
	if c.current.Load() == nil {
		c.look()
	}
}

// Stats count calls of the methods that may go past gRPC, however they ended. Those by which
// servers are looked for do not count.
type Stats struct {
	// Direct were sent past gRPC, or may have been.
	Direct uint64
	// GRPC went by gRPC: there was no server to call, or that did not take them, or they said in
	// their metadata or options what only gRPC carries.
	GRPC uint64
}

// counters are the numbers of Stats.
type counters struct{ direct, grpc atomic.Uint64 }

// Stats returns the numbers since New, also after Close. A call is counted when it is decided
// whether it goes by gRPC.
func (c *Calls) Stats() Stats {
	return Stats{Direct: c.counters.direct.Load(), GRPC: c.counters.grpc.Load()}
}

package direct

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

const (
	// probeTimeout bounds the wait for a server's answer to the first call.
	probeTimeout = 2 * time.Second
	// maxServers bounds the connections that are kept.
	maxServers = 16
	// connections is the number of connections to the current server. On each connection, the server
	// reads calls one after the other, and the client reads answers one after the other.
	connections = 2
	// maxInFlight bounds the running calls on each connection.
	maxInFlight = 1024
)

// Config is the configuration of Calls. The zero value is for TCP without TLS.
type Config struct {
	// Dial connects to an address (host:port); nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS is the TLS configuration of the etcd client; nil for plain text. Without TLS, endpoints
	// with the scheme https are not called past gRPC.
	TLS *tls.Config
	// Token is the etcd client's token. If it is empty, calls carry the token from the etcd
	// client's own Authenticate, if that client has a user.
	Token string
	// Logger logs the choice of the server; nil: nothing is logged.
	Logger *slog.Logger
}

// Calls makes the calls of one etcd client. Safe for concurrent use.
type Calls struct {
	dialer *client.Dialer
	logger *slog.Logger
	// clients and streams identify the connections to servers: on each connection the client has
	// another number.
	clients [connections]uint64
	streams atomic.Uint64
	secure  bool
	// token is the token sent with calls: from the last answer of Authenticate for the client's
	// user; nil before.
	token atomic.Pointer[string]
	// current is the server that receives the calls; nil while they go by gRPC.
	current  atomic.Pointer[server]
	counters counters

	// ctx ends with Close. running counts the running search.
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
		// searched closes when the running search has ended; nil without a search.
		searched chan struct{}
		// failures counts the failed searches in a row. No search begins before until.
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
	// renewing is set if the server renews leases past gRPC.
	renewing renewing
}

// conn returns the connections in turn.
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

// Close ends the connections. Running calls and renewal streams fail; later calls go by gRPC.
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

// Stats count the calls of methods that may bypass gRPC, with any outcome. Calls that search for a
// server do not count.
type Stats struct {
	// Direct counts the calls that were sent past gRPC, or may have been.
	Direct uint64
	// GRPC counts the calls that went by gRPC: no server was found, or the server did not accept
	// the call, or the call had metadata or options that only gRPC carries.
	GRPC uint64
}

// counters are the numbers of Stats.
type counters struct{ direct, grpc atomic.Uint64 }

// Stats returns the numbers since New, also after Close. A call is counted when its way is chosen.
func (c *Calls) Stats() Stats {
	return Stats{Direct: c.counters.direct.Load(), GRPC: c.counters.grpc.Load()}
}

package coord

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

const (
	// DefaultPrefix is before the keys of all recipes, unless Prefix says something else.
	DefaultPrefix = "coord/"
	// DefaultAttemptTimeout is how long a server has to answer one request before the request goes
	// to another server.
	DefaultAttemptTimeout = 5 * time.Second

	// A connection on which a call waits and nothing arrives is closed after pingAfter plus the time
	// for an answer to the ping. Servers of etcd refuse clients that ping more often than every five
	// seconds, or while no call waits.
	pingAfter   = 10 * time.Second
	pingTimeout = 5 * time.Second

	// A server that cannot be reached is tried again after reconnectFirst, and then after growing
	// pauses up to reconnectMost, randomized by a fifth. An attempt may take connectTimeout. So after
	// the end of an outage a client may be without a connection for up to that time. gRPC's own pause
	// of up to two minutes is longer than the default time to live of a session (DefaultTTL).
	reconnectFirst = 50 * time.Millisecond
	reconnectMost  = 3 * time.Second
	connectTimeout = 5 * time.Second
)

// reconnect configures the pauses between attempts to connect.
var reconnect = grpc.ConnectParams{MinConnectTimeout: connectTimeout, Backoff: backoff.Config{
	BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMost}}

// Client is a client of the coordination service. Make one and share it: its methods, and those of
// the objects that it makes, may be called from any number of goroutines.
type Client struct {
	etcd *clientv3.Client
	// members is nil in a client made by New, because such a client closes no connections.
	members *members
	// calls makes calls past gRPC. It is nil in a client made by New.
	calls   *direct.Calls
	prefix  string
	attempt time.Duration
	clock   hlc.Monotonic
	// wall is the wall clock of this machine, and time the clock of the service.
	wall func() time.Time
	time serviceClock
	// id and made are the parts of values that no other write has.
	id   string
	made atomic.Uint64
	// renewing is the stream of renewals of the client's sessions.
	renewing renewing
}

type config struct {
	etcd    clientv3.Config
	dial    func(ctx context.Context, address string) (net.Conn, error)
	prefix  string
	attempt time.Duration
	clock   hlc.Monotonic
	wall    func() time.Time
}

// Option is an option of Connect and New.
type Option func(*config)

// TLS encrypts connections. Without it they are plain text. It is for Connect.
func TLS(t *tls.Config) Option { return func(c *config) { c.etcd.TLS = t } }

// User authenticates with a name and a password. It is for Connect.
func User(name, password string) Option {
	return func(c *config) { c.etcd.Username, c.etcd.Password = name, password }
}

// DialTimeout limits how long Connect waits for the first answer of a server. If it is 0, Connect
// waits until its context ends.
func DialTimeout(d time.Duration) Option { return func(c *config) { c.etcd.DialTimeout = d } }

// AttemptTimeout is how long a server has to answer one request before the request is sent to the
// next server. The default is DefaultAttemptTimeout.
func AttemptTimeout(d time.Duration) Option { return func(c *config) { c.attempt = d } }

// Dialer makes the connections to servers (host:port), in place of TCP. It is for Connect.
func Dialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return func(c *config) {
		c.dial = dial
		c.etcd.DialOptions = append(c.etcd.DialOptions, grpc.WithContextDialer(dial))
	}
}

// Prefix is put before the keys of all recipes. With different prefixes, applications that share a
// service do not use the same keys. The default is DefaultPrefix.
func Prefix(p string) Option { return func(c *config) { c.prefix = p } }

// Monotonic sets the clock, in nanoseconds, by which sessions measure their time to live. The clock
// must never go back. The default clock continues while the process is paused and, on Linux, while
// the machine is suspended. With a clock that stops then, a session would consider itself alive for
// too long. The option is for tests with simulated time.
func Monotonic(clock func() int64) Option { return func(c *config) { c.clock = clock } }

// Wall sets the wall clock of this machine. Shared state depends on it only if the service does not
// provide the time, as etcd does not (see Timer). The option is for tests with simulated time.
func Wall(clock func() time.Time) Option { return func(c *config) { c.wall = clock } }

// Connect connects to the coordination service at the addresses of its servers (host:port, or URLs)
// and returns when one of them has answered. Servers that are not members of the core name the
// members. The client then uses the members, if it reaches one of them, and otherwise the given
// servers, which pass calls on. If the members cannot be reached later, the client asks the given
// addresses for the present members. Close ends the client.
func Connect(ctx context.Context, endpoints []string, options ...Option) (*Client, error) {
	const op = "connect"
	cfg := newConfig(options)
	cfg.etcd.Endpoints = endpoints
	if len(endpoints) == 0 {
		return nil, invalid(op, "", "no endpoints: give the address of at least one server")
	}
	if cfg.etcd.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.etcd.DialTimeout)
		defer cancel()
	}
	members := newMembers(&cfg)
	calls := direct.New(direct.Config{Dial: cfg.dial, TLS: cfg.etcd.TLS})
	cfg.etcd.DialOptions = append(cfg.etcd.DialOptions, calls.DialOptions()...)
	etcd, err := clientv3.New(cfg.etcd)
	if err != nil {
		calls.Close()
		return nil, fail(op, "", err)
	}
	c := newClient(etcd, cfg)
	c.members, c.calls = members, calls
	c.findMembers(ctx)
	members.begin(etcd)
	calls.Begin(etcd.Endpoints)
	// A server has also answered if it refuses to show this key, or reports an unfinished import.
	err = c.until(ctx, func(ctx context.Context) error {
		_, err := c.etcd.Get(ctx, cmp.Or(c.prefix, "\x00"), clientv3.WithCountOnly())
		if isImporting(err) {
			return nil
		}
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
		_ = c.Close()
		return nil, fail(op, "", err)
	}
	return c, nil
}

// findMembers makes the client use the members of the core. If it fails, the client keeps the given
// endpoints.
func (c *Client) findMembers(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, c.attempt)
	defer cancel()
	list, err := listMembers(limited, c.etcd)
	if err != nil {
		return
	}
	if next := c.members.next(ctx, list); !sameAddresses(next, c.etcd.Endpoints()) {
		c.etcd.SetEndpoints(next...)
	}
}

// New makes a client on top of an etcd client that the caller has made, and closes after the
// Client. Only the options Prefix, AttemptTimeout, Monotonic and Wall have an effect. The
// DialOptions of the etcd client determine how soon it connects again after an outage. By default
// gRPC may wait for two minutes.
func New(etcd *clientv3.Client, options ...Option) *Client {
	return newClient(etcd, newConfig(options))
}

func newConfig(options []Option) config {
	cfg := config{prefix: DefaultPrefix, attempt: DefaultAttemptTimeout,
		clock: hlc.SystemMonotonic(), wall: time.Now, etcd: clientv3.Config{
			DialKeepAliveTime: pingAfter, DialKeepAliveTimeout: pingTimeout, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithConnectParams(reconnect)}}}
	for _, o := range options {
		o(&cfg)
	}
	return cfg
}

func newClient(etcd *clientv3.Client, cfg config) *Client {
	var id [12]byte
	rand.Read(id[:]) // never fails
	return &Client{etcd: etcd, prefix: cfg.prefix, attempt: cfg.attempt,
		clock: cfg.clock, wall: cfg.wall, id: hex.EncodeToString(id[:])}
}

// unreachable records that the server of a call that was given up is silent. The error of the call
// itself does not say so.
func (c *Client) unreachable() {
	if c.members != nil {
		c.members.look()
	}
}

// Etcd returns the etcd client below this client, for calls that are not recipes.
func (c *Client) Etcd() *clientv3.Client { return c.etcd }

// Direct returns the address (host:port) of the server that receives requests about keys and leases
// past gRPC (package direct). It is "" while these requests use gRPC, as they always do to servers
// other than Tidemark's.
func (c *Client) Direct() string {
	if c.calls == nil {
		return ""
	}
	return c.calls.Server()
}

// Close ends the renewals of sessions and closes the connections, if Connect made them. Close
// sessions first: a session that is still open is lost to its holder at once, but exists at the
// service until its time to live is over.
func (c *Client) Close() error {
	c.renewing.close()
	if c.members == nil {
		return nil
	}
	c.members.close()
	c.calls.Close()
	if err := c.etcd.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fail("close", "", err)
	}
	return nil
}

// path returns the prefix of a recipe's keys. The name is escaped, so that no name is a prefix of
// another name's path.
func (c *Client) path(recipe, name string) string {
	return c.prefix + recipe + "/" + url.PathEscape(name) + "/"
}

// nonce returns a value that no other write of any client has.
func (c *Client) nonce() string {
	return c.id + "-" + strconv.FormatUint(c.made.Add(1), 36)
}

// checkName refuses invalid names.
func checkName(op, name string) error {
	if name == "" {
		return invalid(op, name, "the name is empty")
	}
	return nil
}

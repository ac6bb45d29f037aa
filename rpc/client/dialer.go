package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/nonblock"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// ErrDialerClosed is what a closed Dialer answers.
var ErrDialerClosed = errors.New("rpc: dialer is closed")

// connectTimeout bounds one attempt to connect, including what the server must say before the
// connection is usable.
const connectTimeout = 2 * time.Second

const (
	// After an attempt to open a client's stream that failed, none is made for connectBackoffBase,
	// doubled with each failure in a row, at most connectBackoffCap.
	connectBackoffBase = 25 * time.Millisecond
	connectBackoffCap  = 500 * time.Millisecond
)

// connectBackoff paces the attempts of one connection. Its cap is short, because a server that
// comes back is wanted at once and an attempt costs little.
var connectBackoff = grpcbackoff.Config{BaseDelay: 25 * time.Millisecond, Multiplier: 1.6,
	Jitter: 0.2, MaxDelay: 500 * time.Millisecond}

// DialerConfig configures a Dialer. The zero value dials TCP in plain text.
type DialerConfig struct {
	// Dial connects to an address; nil dials TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS is nil for plain text.
	TLS *tls.Config
	// TLSNow, if set, is asked for what stands in the place of TLS each time a connection is made.
	TLSNow func() *tls.Config
	// Secret is the cluster's, proved to a server that is called without TLS; empty: none.
	Secret transport.Secret
	// StreamWindow is how many bytes of a stream the other side may send that were not read here:
	// what thousands of streams hold if nobody reads them. Default 1 MiB.
	StreamWindow int32
	// Logger is nil for none.
	Logger *slog.Logger
}

// Dialer keeps one connection to each address, shared by everything in the process that was given
// the Dialer. A connection is made when it is first used, made again when it broke, and broken by
// the Dialer when the other side is silent (see liveness.go). Safe for concurrent use.
type Dialer struct {
	config  DialerConfig
	options []grpc.DialOption
	stop    chan struct{}
	done    sync.WaitGroup

	mu struct {
		sync.Mutex
		connections map[string]*grpc.ClientConn
		closed      bool
		// unreachable are addresses to which the latest attempt failed, and why.
		unreachable map[string]error
	}
}

// NewDialer makes a Dialer.
func NewDialer(c DialerConfig) *Dialer {
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return nonblock.Wrap(conn), nil
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.StreamWindow <= 0 {
		c.StreamWindow = wire.StreamWindow
	}
	shown := insecure.NewCredentials()
	switch {
	case c.TLSNow != nil:
		c.TLS = c.TLSNow()
		shown = newClientCredentials(c.TLSNow)
	case c.TLS != nil:
		shown = credentials.NewTLS(showing(c.TLS))
	case len(c.Secret) > 0:
		shown = transport.ProvingCredentials(c.Secret, shown)
	}
	d := &Dialer{config: c, stop: make(chan struct{})}
	d.mu.connections = make(map[string]*grpc.ClientConn)
	d.options = []grpc.DialOption{
		grpc.WithTransportCredentials(shown),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}),
			grpc.MaxCallRecvMsgSize(wire.MaxMessageBytes), grpc.MaxCallSendMsgSize(wire.MaxMessageBytes),
			// Once a stream is made it belongs to its connection. Otherwise gRPC keeps the first
			// messages of each stream, to send them again by itself if the server did not take the
			// stream; and while it waits for a connection to do so, every sender waits with it. The
			// caller tries again, and knows better when.
			grpc.MaxRetryRPCBufferSize(0)),
		grpc.WithStaticStreamWindowSize(c.StreamWindow),
		grpc.WithStaticConnWindowSize(wire.ConnectionWindow),
		grpc.WithReadBufferSize(wire.IOBuffer),
		grpc.WithWriteBufferSize(wire.IOBuffer),
		grpc.WithMaxHeaderListSize(wire.MaxHeaderBytes),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: connectBackoff,
			MinConnectTimeout: connectTimeout}),
		grpc.WithIdleTimeout(0),
		// Nothing may come from outside the config, and nothing is retried behind our back.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithDisableRetry(),
		experimental.WithBufferPool(wire.Buffers),
	}
	return d
}

// Open makes a connection of package transport to addr, which its caller closes.
func (d *Dialer) Open(ctx context.Context, addr string, hello []byte) (*transport.Conn, error) {
	if err := checkAddress(addr); err != nil {
		return nil, err
	}
	d.mu.Lock()
	closed := d.mu.closed
	d.mu.Unlock()
	if closed {
		return nil, ErrDialerClosed
	}
	config := d.config.TLS
	if d.config.TLSNow != nil {
		config = d.config.TLSNow()
	}
	if config != nil {
		config = showing(config)
	}
	conn, err := transport.Open(ctx, d.config.Dial, addr, config, d.config.Secret, hello)
	if !errors.Is(ctx.Err(), context.Canceled) {
		d.noteOpened(addr, err)
	}
	return conn, err
}

// maxUnreachable bounds the addresses that are remembered as unreachable.
const maxUnreachable = 1024

// noteOpened notes how the latest attempt to open a connection to an address ended.
func (d *Dialer) noteOpened(addr string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		delete(d.mu.unreachable, addr)
	case d.mu.unreachable == nil:
		d.mu.unreachable = map[string]error{addr: err}
	case len(d.mu.unreachable) < maxUnreachable:
		d.mu.unreachable[addr] = err
	}
}

// Unreachable is why the latest attempt to open a connection of clients or peers to an address
// failed; nil if it did not, or there was none.
func (d *Dialer) Unreachable(addr string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.unreachable[addr]
}

// Ready says that there is a connection to addr that can be used at once. It makes none.
func (d *Dialer) Ready(addr string) bool {
	d.mu.Lock()
	conn := d.mu.connections[addr]
	d.mu.Unlock()
	return conn != nil && conn.GetState() == connectivity.Ready
}

// Conn gives the connection to addr. It belongs to the Dialer: do not close it.
func (d *Dialer) Conn(addr string) (*grpc.ClientConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed {
		return nil, ErrDialerClosed
	}
	if conn, ok := d.mu.connections[addr]; ok {
		return conn, nil
	}
	if err := checkAddress(addr); err != nil {
		return nil, err
	}
	w := &watch{addr: addr, logger: d.config.Logger}
	options := append(d.options[:len(d.options):len(d.options)],
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := d.config.Dial(ctx, addr)
			if err != nil {
				return nil, err
			}
			return w.wrap(conn), nil
		}))
	conn, err := grpc.NewClient("passthrough:///"+addr, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", addr, err)
	}
	d.mu.connections[addr] = conn
	d.done.Go(func() { w.run(conn, d.stop) })
	return conn, nil
}

func checkAddress(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil || strings.ContainsFunc(addr, oddInAddress) {
		return fmt.Errorf("connect to %q: not an address of the form host:port", addr)
	}
	return nil
}

// oddInAddress finds what would not survive in gRPC's target, which is a URL.
func oddInAddress(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("%/?#@\\", r) }

// Close closes all connections, and waits for what watches them.
func (d *Dialer) Close() error {
	d.mu.Lock()
	if d.mu.closed {
		d.mu.Unlock()
		return nil
	}
	d.mu.closed = true
	connections := d.mu.connections
	d.mu.connections = nil
	d.mu.Unlock()

	close(d.stop)
	var errs []error
	for addr, conn := range connections {
		if err := conn.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close connection to %q: %w", addr, err))
		}
	}
	d.done.Wait()
	return errors.Join(errs...)
}

// Backoff is the time after a failure in which nothing is tried again. The zero backoff is over.
type Backoff struct {
	Failures int
	until    time.Time
}

// Failed begins a backoff: base, doubled with each failure in a row, at most limit, of which up to
// half is left out.
func (b *Backoff) Failed(now time.Time, base, limit time.Duration) {
	b.until = now.Add(backoff.Step(b.Failures, base, limit, 0.5, rand.Float64()))
	b.Failures++
}

func (b *Backoff) Lasts(now time.Time) bool { return now.Before(b.until) }

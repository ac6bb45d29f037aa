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

// ErrDialerClosed is returned by a closed Dialer.
var ErrDialerClosed = errors.New("rpc: dialer is closed")

// connectTimeout bounds one attempt to connect, until the server has accepted the connection.
const connectTimeout = 2 * time.Second

const (
	// After a failed attempt to open a client's stream, there is a pause of connectBackoffBase,
	// doubled with each failure in a row, at most connectBackoffCap.
	connectBackoffBase = 25 * time.Millisecond
	connectBackoffCap  = 500 * time.Millisecond
)

// connectBackoff paces the attempts of one connection. Its cap is short, because a server that
// comes back is wanted at once and an attempt costs little.
var connectBackoff = grpcbackoff.Config{BaseDelay: 25 * time.Millisecond, Multiplier: 1.6,
	Jitter: 0.2, MaxDelay: 500 * time.Millisecond}

// DialerConfig configures a Dialer. With the zero value it dials TCP in plaintext.
type DialerConfig struct {
	// Dial connects to an address; nil dials TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// TLS is nil for plaintext.
	TLS *tls.Config
	// TLSNow, if set, replaces TLS. It is called for each connection.
	TLSNow func() *tls.Config
	// Secret is the cluster's secret, proved to servers that are called without TLS; empty: none.
	Secret transport.Secret
	// StreamWindow is how many bytes of a stream the other side may send before they are read here,
	// which is the memory that unread streams take. Default 1 MiB.
	StreamWindow int32
	// Logger is nil for none.
	Logger *slog.Logger
}

// Dialer keeps one connection to each address, shared by all users of the Dialer. It connects at
// the first use, reconnects when the connection broke, and closes the connection itself when the
// other side is silent (see liveness.go). Safe for concurrent use.
type Dialer struct {
	config  DialerConfig
	options []grpc.DialOption
	stop    chan struct{}
	done    sync.WaitGroup

	mu struct {
		sync.Mutex
		connections map[string]*grpc.ClientConn
		closed      bool
		// unreachable maps each address at which the latest attempt failed to the error.
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
			// No retries by gRPC: it would keep the first messages of each stream, to send them
			// again if the server did not take the stream; and while it waits for a connection to
			// do so, every sender waits with it. The caller tries again, and knows better when.
			grpc.MaxRetryRPCBufferSize(0)),
		grpc.WithStaticStreamWindowSize(c.StreamWindow),
		grpc.WithStaticConnWindowSize(wire.ConnectionWindow),
		grpc.WithReadBufferSize(wire.IOBuffer),
		grpc.WithWriteBufferSize(wire.IOBuffer),
		grpc.WithMaxHeaderListSize(wire.MaxHeaderBytes),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: connectBackoff,
			MinConnectTimeout: connectTimeout}),
		grpc.WithIdleTimeout(0),
		// Nothing may depend on the environment, and gRPC must not retry by itself.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithDisableRetry(),
		experimental.WithBufferPool(wire.Buffers),
	}
	return d
}

// Open makes a connection of package transport to addr. The caller closes it.
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

// noteOpened records the result of an attempt to connect to an address.
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

// Unreachable returns the error of the latest attempt to connect to an address, for clients or
// peers; nil if it succeeded, or there was none.
func (d *Dialer) Unreachable(addr string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.unreachable[addr]
}

// Ready reports that there is a usable connection to addr. It makes none.
func (d *Dialer) Ready(addr string) bool {
	d.mu.Lock()
	conn := d.mu.connections[addr]
	d.mu.Unlock()
	return conn != nil && conn.GetState() == connectivity.Ready
}

// Conn returns the connection to addr. It belongs to the Dialer: do not close it.
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

// oddInAddress finds characters that would not survive in gRPC's target, which is a URL.
func oddInAddress(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("%/?#@\\", r) }

// Close closes all connections, and waits for the goroutines that watch them.
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

// Backoff is the pause after a failure. The zero Backoff is over.
type Backoff struct {
	Failures int
	until    time.Time
}

// Failed begins a pause of base, doubled with each failure in a row, at most limit, less a random
// part of up to half.
func (b *Backoff) Failed(now time.Time, base, limit time.Duration) {
	b.until = now.Add(backoff.Step(b.Failures, base, limit, 0.5, rand.Float64()))
	b.Failures++
}

func (b *Backoff) Lasts(now time.Time) bool { return now.Before(b.until) }

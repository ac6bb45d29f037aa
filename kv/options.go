package kv

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/route"
)

const (
	// DefaultRequestTimeout bounds calls whose context has no deadline.
	DefaultRequestTimeout = 30 * time.Second
	// DefaultMaxClockOffset is how far the clocks of two nodes may be apart if they were configured with nothing else.
	DefaultMaxClockOffset = 250 * time.Millisecond

	openTimeout = 10 * time.Second
)

type config struct {
	route          route.Config
	requestTimeout time.Duration
	maxClockOffset time.Duration
	creating       func(keyspace string, made, total int)
}

// Option configures a Client.
type Option func(*config)

// WithDialer makes connections with dial instead of TCP. dial must be safe for concurrent use.
func WithDialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return func(c *config) { c.route.Dial = dial }
}

// WithTLS encrypts connections. Without it they are plain text.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.route.TLS = t } }

// WithLogger lets the client say what it notices about the cluster. Without it the client is silent.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.route.Logger = l } }

// WithRequestTimeout bounds every call whose context has no deadline; 0 lets such calls go on for as long as it takes. The
// default is DefaultRequestTimeout. A scan, count or range deletion is bounded by it page by page, not as a whole.
func WithRequestTimeout(d time.Duration) Option { return func(c *config) { c.requestTimeout = d } }

// WithCreationProgress has progress called while CreateKeyspace or CreateKeyspaceIfMissing waits,
// by its goroutine: whenever more partitions of the keyspace have been made, of the total. The
// total is 0 if that is not known.
func WithCreationProgress(progress func(keyspace string, made, total int)) Option {
	return func(c *config) { c.creating = progress }
}

// WithConnectionsPerNode spreads requests over n connections to each node. The default is 1, which suits all but the
// largest values: calls made at the same time share messages on it.
func WithConnectionsPerNode(n int) Option { return func(c *config) { c.route.ConnectionsPerNode = n } }

// WithMetrics registers the client's metrics. Clients that share a registry need different label sets
// (prometheus.WrapRegistererWith).
func WithMetrics(r prometheus.Registerer) Option { return func(c *config) { c.route.Registerer = r } }

// WithMaxClockOffset has the client expect that the clocks of two nodes are as far apart as that, even if the servers say that they are closer. It is not needed:
// the servers say how they are configured.
func WithMaxClockOffset(d time.Duration) Option { return func(c *config) { c.maxClockOffset = d } }

// WithRandom sets the source of client ids and jitter; for simulations that are to repeat themselves.
func WithRandom(random func() uint64) Option { return func(c *config) { c.route.Random = random } }

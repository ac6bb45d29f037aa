package kv

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/tidemarkdb/tidemark/metric"
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

// Option is an option of Open: TLS, RequestTimeout, Logger, Metrics and so on.
type Option interface{ open(*config) }

type clientOption func(*config)

func (o clientOption) open(c *config) { o(c) }

// Dialer makes connections with dial instead of TCP. dial must be safe for concurrent use.
func Dialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return clientOption(func(c *config) { c.route.Dial = dial })
}

// TLS encrypts connections. Without it they are plain text.
func TLS(t *tls.Config) Option { return clientOption(func(c *config) { c.route.TLS = t }) }

// Logger lets the client say what it notices about the cluster. Without it the client is silent.
func Logger(l *slog.Logger) Option { return clientOption(func(c *config) { c.route.Logger = l }) }

// RequestTimeout bounds every call whose context has no deadline; 0 lets such calls go on for as
// long as it takes. The default is DefaultRequestTimeout. A scan, count or range deletion is bounded
// by it page by page, not as a whole.
func RequestTimeout(d time.Duration) Option {
	return clientOption(func(c *config) { c.requestTimeout = d })
}

// CreationProgress has progress called while CreateKeyspace or CreateKeyspaceIfMissing waits, by its
// goroutine: whenever more partitions of the keyspace have been made, of the total. The total is 0
// if that is not known.
func CreationProgress(progress func(keyspace string, made, total int)) Option {
	return clientOption(func(c *config) { c.creating = progress })
}

// ConnectionsPerNode spreads requests over n connections to each node. The default is 1, which suits
// all but the largest values: calls made at the same time share messages on it.
func ConnectionsPerNode(n int) Option {
	return clientOption(func(c *config) { c.route.ConnectionsPerNode = n })
}

// Metrics registers the client's metrics. Package kvprom has one for Prometheus.
func Metrics(r metric.Registry) Option {
	return clientOption(func(c *config) { c.route.Registry = r })
}

// MaxClockOffset has the client expect that the clocks of two nodes are as far apart as that, even
// if the servers say that they are closer. It is not needed: the servers say how they are
// configured.
func MaxClockOffset(d time.Duration) Option {
	return clientOption(func(c *config) { c.maxClockOffset = d })
}

// Random sets the source of client ids and jitter; for simulations that are to repeat themselves.
func Random(random func() uint64) Option {
	return clientOption(func(c *config) { c.route.Random = random })
}

package kv

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

const (
	// DefaultRequestTimeout bounds calls whose context has no deadline.
	DefaultRequestTimeout = 30 * time.Second
	// DefaultMaxClockOffset is how far the clocks of two nodes may differ unless they are
	// configured otherwise.
	DefaultMaxClockOffset = 250 * time.Millisecond

	openTimeout = 10 * time.Second
)

type config struct {
	conn.Config
	creating func(keyspace string, made, total int)
}

// Option is an option of Open: TLS, RequestTimeout, Logger, Metrics and so on.
type Option interface{ open(*config) }

type clientOption func(*config)

func (o clientOption) open(c *config) { o(c) }

// Dialer makes connections with dial instead of TCP. dial must be safe for concurrent use.
func Dialer(dial func(ctx context.Context, address string) (net.Conn, error)) Option {
	return clientOption(func(c *config) { c.Route.Dial = dial })
}

// TLS encrypts connections. Without it they are plain text.
func TLS(t *tls.Config) Option { return clientOption(func(c *config) { c.Route.TLS = t }) }

// Logger receives what the client notices about the cluster. Without it the client is silent.
func Logger(l *slog.Logger) Option { return clientOption(func(c *config) { c.Route.Logger = l }) }

// RequestTimeout bounds every call whose context has no deadline; 0: no bound. The default is
// DefaultRequestTimeout. It bounds each page of a scan, count or range deletion, not the whole.
func RequestTimeout(d time.Duration) Option {
	return clientOption(func(c *config) { c.RequestTimeout = d })
}

// CreationProgress sets a function that is called while CreateKeyspace or CreateKeyspaceIfMissing
// waits, on the caller's goroutine, whenever more partitions of the keyspace have been made. total
// is 0 if it is not known.
func CreationProgress(progress func(keyspace string, made, total int)) Option {
	return clientOption(func(c *config) { c.creating = progress })
}

// User makes the client identify itself as a user, which is necessary while authentication is
// enabled: users need permissions for the keys that they read and write, and the role root to
// administer. password is called each time that the client has a member of the core exchange it for
// a token, which is every few minutes; it must be safe for concurrent use. Without User and Token a
// client is known by the common name of its certificate (TLS), if the servers check certificates.
func User(name string, password func(context.Context) (string, error)) Option {
	return clientOption(func(c *config) {
		c.Route.User = &identity.User{Name: name, Password: password}
	})
}

// Password returns a function for User that returns a constant password.
func Password(password string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return password, nil }
}

// Token makes the client identify itself by tokens from another source, instead of User: source
// returns a token, as Authenticate of the etcd API does; empty: no token. It is called every few
// minutes, and when a server does not accept the latest token: a token is valid for 5 minutes.
func Token(source func(context.Context) (string, error)) Option {
	return clientOption(func(c *config) { c.Route.Token = source })
}

// ConnectionsPerNode spreads requests over n connections to each node. The default is 1, which
// suits all but the largest values: calls made at the same time share messages on it.
func ConnectionsPerNode(n int) Option {
	return clientOption(func(c *config) { c.Route.ConnectionsPerNode = n })
}

// Metrics registers the client's metrics. Package kvprom has one for Prometheus.
func Metrics(r metric.Registry) Option {
	return clientOption(func(c *config) { c.Route.Registry = r })
}

// MaxClockOffset makes the client expect that the clocks of two nodes differ by up to d, even if
// the servers report less. It is not needed: the servers report their configuration.
func MaxClockOffset(d time.Duration) Option {
	return clientOption(func(c *config) { c.MaxClockOffset = d })
}

// Locality says where the client is, as the servers' --locality does: reads that any replica may
// answer (Nearest and the like) go to a replica in the same zone, or else in the same region, if
// there is one. Either may be empty.
func Locality(region, zone string) Option {
	return clientOption(func(c *config) { c.Route.Region, c.Route.Zone = region, zone })
}

// Random sets the source of client ids and jitter, for simulations that have to be repeatable.
func Random(random func() uint64) Option {
	return clientOption(func(c *config) { c.Route.Random = random })
}

// query is the sum of the options of a read, or of a range deletion.
type query struct {
	reader.Query
	explicit bool // a span was asked for
	prefixed bool
	bounded  bool
	fresh    freshness
	// info is what ReadAt fills in; may be nil.
	info *ReadInfo
	bad  string
}

// GetOption is an option of Get and BatchGet: At, ReadAt, and those of FreshnessOption.
type GetOption interface{ get(*query) }

// CountOption is an option of Count: At, Prefix, From, To, All, ReadAt, and those of
// FreshnessOption.
type CountOption interface{ count(*query) }

// ScanOption is an option of Scan: all there are.
type ScanOption interface{ scan(*query) }

// DeleteRangeOption is an option of DeleteRange: Prefix, From, To, All.
type DeleteRangeOption interface{ deleteRange(*query) }

// SpanOption chooses keys.
type SpanOption struct{ apply func(*query) }

func (o SpanOption) count(q *query)       { o.apply(q) }
func (o SpanOption) scan(q *query)        { o.apply(q) }
func (o SpanOption) deleteRange(q *query) { o.apply(q) }

// TimeOption chooses the timestamp of a read.
type TimeOption struct{ at Timestamp }

func (o TimeOption) apply(q *query) {
	q.At, q.HasAt = o.at, true
	if o.at.Wall <= 0 {
		q.bad = "At with an unset timestamp"
	}
}
func (o TimeOption) get(q *query)   { o.apply(q) }
func (o TimeOption) count(q *query) { o.apply(q) }
func (o TimeOption) scan(q *query)  { o.apply(q) }

// ShapeOption says how to scan.
type ShapeOption struct{ apply func(*query) }

func (o ShapeOption) scan(q *query) { o.apply(q) }

// Prefix chooses all keys that start with p. With From or To it chooses the keys within both.
func Prefix(p []byte) SpanOption {
	p = clone(p)
	return SpanOption{func(q *query) {
		q.explicit, q.prefixed = true, true
		q.Span = q.Span.Intersect(keys.PrefixSpan(p))
	}}
}

// From chooses all keys at or above k.
func From(k []byte) SpanOption {
	k = clone(k)
	return SpanOption{func(q *query) {
		q.explicit, q.bounded = true, true
		q.Span = q.Span.Intersect(keys.Span{Start: k})
	}}
}

// To chooses all keys below k, without k itself.
func To(k []byte) SpanOption {
	k = clone(k)
	return SpanOption{func(q *query) {
		q.explicit, q.bounded = true, true
		if len(k) == 0 {
			q.bad = "To with an empty key: nothing lies below it; leave To out to go to the end"
		}
		q.Span = q.Span.Intersect(keys.Span{End: k})
	}}
}

// All chooses every key of the keyspace. It is the default of Scan and Count; DeleteRange wants it
// named.
func All() SpanOption { return SpanOption{func(q *query) { q.explicit = true }} }

// At reads the past as of ts. It is an exact read: it sees the versions at or below ts, whenever
// they were acknowledged. The leader answers, or with Nearest any replica.
func At(ts Timestamp) TimeOption { return TimeOption{ts} }

// AtTime reads the past as of t by the cluster's clocks.
func AtTime(t time.Time) TimeOption { return TimeOption{TimestampOf(t)} }

// Limit ends the scan after n rows; 0 is no limit.
func Limit(n int) ShapeOption {
	return ShapeOption{func(q *query) {
		q.Limit = n
		if n < 0 {
			q.bad = "Limit must not be below 0; 0 is no limit"
		}
	}}
}

// Reverse scans from the highest key down.
func Reverse() ShapeOption { return ShapeOption{func(q *query) { q.Reverse = true }} }

// KeysOnly leaves the values out; versions are there.
func KeysOnly() ShapeOption { return ShapeOption{func(q *query) { q.KeysOnly = true }} }

// PageSize bounds the rows in one page. The client chooses well by itself: small pages first, then
// larger ones.
func PageSize(n int) ShapeOption {
	return ShapeOption{func(q *query) {
		q.PageSize = n
		if n <= 0 {
			q.bad = "PageSize must be above 0"
		}
	}}
}

// check returns what is wrong with the query; empty if nothing is.
func (q *query) check() string {
	switch {
	case q.bad != "":
		return q.bad
	case q.fresh.conflict(q.HasAt) != "":
		return q.fresh.conflict(q.HasAt)
	case q.bounded && !q.prefixed && q.Span.End != nil && bytes.Compare(q.Span.Start, q.Span.End) > 0:
		return "From " + keys.Pretty(q.Span.Start) + " lies above To " + keys.Pretty(q.Span.End)
	}
	return ""
}

func (q *query) empty() bool { return q.Span.Empty() }

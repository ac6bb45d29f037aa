package kv

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/reader"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

const (
	// DefaultRequestTimeout limits calls whose context has no deadline.
	DefaultRequestTimeout = 30 * time.Second
	// DefaultMaxClockOffset is the default of the maximum difference between the clocks of two nodes.
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

// Logger sets the logger for events of the cluster that the client notices. Without it the client
// logs nothing.
func Logger(l *slog.Logger) Option { return clientOption(func(c *config) { c.Route.Logger = l }) }

// RequestTimeout limits every call whose context has no deadline. 0 means no limit. The default is
// DefaultRequestTimeout. In a scan, count or range deletion it limits each page, and not the whole
// call.
func RequestTimeout(d time.Duration) Option {
	return clientOption(func(c *config) { c.RequestTimeout = d })
}

// CreationProgress sets a function that is called while CreateKeyspace or CreateKeyspaceIfMissing
// waits, on the caller's goroutine, whenever more partitions of the keyspace are set up. total is 0
// if it is not known.
func CreationProgress(progress func(keyspace string, made, total int)) Option {
	return clientOption(func(c *config) { c.creating = progress })
}

// User sets the user as which the client authenticates. This is necessary while authentication is
// enabled: users need permissions for the keys that they read and write, and the role root for
// administration. Every few minutes, the client calls password and exchanges the password for a
// token at a member of the core. password must be safe for concurrent use. Without User and Token,
// the client's user is the common name of its certificate (TLS), if the servers check certificates.
func User(name string, password func(context.Context) (string, error)) Option {
	return clientOption(func(c *config) {
		c.Route.User = &identity.User{Name: name, Password: password}
	})
}

// Password returns a function for User that returns a constant password.
func Password(password string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return password, nil }
}

// Token makes the client authenticate by tokens from another source, instead of User. source
// returns a token, as Authenticate of the etcd API does, or an empty text for no token. It is
// called every few minutes, and when a server does not accept the latest token. A token is valid
// for 5 minutes.
func Token(source func(context.Context) (string, error)) Option {
	return clientOption(func(c *config) { c.Route.Token = source })
}

// ConnectionsPerNode spreads requests over n connections to each node. The default is 1, which is
// best except for very large values: calls that are made at the same time share messages on the
// connection.
func ConnectionsPerNode(n int) Option {
	return clientOption(func(c *config) { c.Route.ConnectionsPerNode = n })
}

// Metrics registers the client's metrics in a registry. Package kvprom has a registry for
// Prometheus.
func Metrics(r metric.Registry) Option {
	return clientOption(func(c *config) { c.Route.Registry = r })
}

// TracerProvider makes the client trace its calls by OpenTelemetry: transactions, other calls, and
// their requests to nodes. Servers that export traces add the parts of the time of those requests.
// The sampler of the provider decides which calls are traced. Spans contain no keys or values.
func TracerProvider(p trace.TracerProvider) Option {
	return clientOption(func(c *config) { c.Route.Tracer = calltrace.New(p) })
}

// MaxClockOffset makes the client expect that the clocks of two nodes differ by up to d, even if
// the servers report less. It is normally not needed, because the servers report their setting.
func MaxClockOffset(d time.Duration) Option {
	return clientOption(func(c *config) { c.MaxClockOffset = d })
}

// Locality says where the client is, as --locality of the servers does. Reads that any replica may
// answer (Nearest and the like) go to a replica in the same zone, or else in the same region, if
// there is one. Region and zone may be empty.
func Locality(region, zone string) Option {
	return clientOption(func(c *config) { c.Route.Region, c.Route.Zone = region, zone })
}

// Random sets the source of client ids and jitter, for simulations that must be repeatable.
func Random(random func() uint64) Option {
	return clientOption(func(c *config) { c.Route.Random = random })
}

// query collects the options of a read, or of a range deletion.
type query struct {
	reader.Query
	explicit bool // a span was given
	prefixed bool
	bounded  bool
	fresh    freshness
	// info is filled in by ReadAt. It may be nil.
	info *ReadInfo
	bad  string
}

// GetOption is an option of Get and BatchGet: At, ReadAt, and the options of FreshnessOption.
type GetOption interface{ get(*query) }

// CountOption is an option of Count: At, Prefix, From, To, All, ReadAt, and the options of
// FreshnessOption.
type CountOption interface{ count(*query) }

// ScanOption is an option of Scan: all options of reads.
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

// ShapeOption changes how a scan runs.
type ShapeOption struct{ apply func(*query) }

func (o ShapeOption) scan(q *query) { o.apply(q) }

// Prefix chooses all keys that start with p. Together with From or To, it chooses the keys that
// satisfy all of the options.
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

// All chooses every key of the keyspace. It is the default of Scan and Count. DeleteRange has no
// default.
func All() SpanOption { return SpanOption{func(q *query) { q.explicit = true }} }

// At reads the past at ts. The read is exact: it sees the versions at or below ts, whenever they
// were acknowledged. The leader answers, or with Nearest any replica.
func At(ts Timestamp) TimeOption { return TimeOption{ts} }

// AtTime reads the past at time t of the cluster's clocks.
func AtTime(t time.Time) TimeOption { return TimeOption{TimestampOf(t)} }

// Limit ends the scan after n rows. 0 means no limit.
func Limit(n int) ShapeOption {
	return ShapeOption{func(q *query) {
		q.Limit = n
		if n < 0 {
			q.bad = "Limit must not be below 0; 0 is no limit"
		}
	}}
}

// Reverse scans in descending key order.
func Reverse() ShapeOption { return ShapeOption{func(q *query) { q.Reverse = true }} }

// KeysOnly leaves out the values. The pairs still have versions.
func KeysOnly() ShapeOption { return ShapeOption{func(q *query) { q.KeysOnly = true }} }

// PageSize limits the rows in one page. By default the client chooses the size: small pages first,
// then larger ones.
func PageSize(n int) ShapeOption {
	return ShapeOption{func(q *query) {
		q.PageSize = n
		if n <= 0 {
			q.bad = "PageSize must be above 0"
		}
	}}
}

// check returns what is wrong with the query. It is empty if the query is valid.
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

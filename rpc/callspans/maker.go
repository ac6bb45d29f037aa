package callspans

import (
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Fields are the fields of metadata, and of HTTP headers, that name the span of the caller.
var Fields = []string{"traceparent", "tracestate"}

// tailEvery is the least time between two spans of calls that are traced because they were slow or
// failed.
const tailEvery = 10 * time.Millisecond

// Config configures a Maker.
type Config struct {
	// Provider must record all spans: the Maker chooses. nil: no call has a span.
	Provider trace.TracerProvider
	// Server is the address of this server.
	Server string
	// Rate is the share of calls, from 0 to 1, that have a span whatever they do.
	Rate float64
	// Slow is the time from which on a call is slow; 0 or less: none is.
	Slow time.Duration
}

// Maker makes spans. A nil Maker makes none. Safe for concurrent use.
type Maker struct {
	tracer trace.Tracer
	config Config
	tail   *rate.Limiter
}

// New returns a Maker; nil if there is no provider.
func New(c Config) *Maker {
	if c.Provider == nil {
		return nil
	}
	return &Maker{tracer: c.Provider.Tracer("github.com/tidemarkdb/tidemark/rpc/callspans"), config: c,
		tail: rate.NewLimiter(rate.Every(tailEvery), 1)}
}

// Call begins a call with one request and one answer. The caller uses the context for the call, and
// calls end with the call's error when it ends. method is service and method, as in
// "etcdserverpb.KV/Put".
func (m *Maker) Call(ctx context.Context, method string) (_ context.Context, end func(error)) {
	if m == nil {
		return ctx, func(error) {}
	}
	return m.begin(ctx, method, m.config.Slow)
}

// Stream begins a call with several messages, as Call does.
func (m *Maker) Stream(ctx context.Context, method string) (_ context.Context, end func(error)) {
	if m == nil {
		return ctx, func(error) {}
	}
	return m.begin(ctx, method, 0)
}

func (m *Maker) begin(ctx context.Context, method string,
	slow time.Duration) (context.Context, func(error)) {
	given, _ := metadata.FromIncomingContext(ctx)
	var parent trace.SpanContext
	if len(given.Get(Fields[0])) > 0 {
		caller := propagation.TraceContext{}.Extract(context.Background(), carrier(given))
		parent = trace.SpanContextFromContext(caller)
	}
	if parent.IsSampled() || m.config.Rate > 0 && rand.Float64() < m.config.Rate {
		ctx, span := m.start(ctx, parent, method, time.Now())
		own := carrier(given.Copy())
		propagation.TraceContext{}.Inject(ctx, own)
		return metadata.NewIncomingContext(ctx, metadata.MD(own)), func(err error) { finish(span, err) }
	}
	began := time.Now()
	return ctx, func(err error) {
		if (slow > 0 && time.Since(began) >= slow || failed(err)) && m.tail.Allow() {
			_, span := m.start(ctx, parent, method, began)
			finish(span, err)
		}
	}
}

func (m *Maker) start(ctx context.Context, parent trace.SpanContext, method string,
	began time.Time) (context.Context, trace.Span) {
	return m.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), method,
		trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("rpc.system", "grpc"),
			attribute.String("tidemark.server", m.config.Server)))
}

// finish ends a span. The text of an error may name keys, so the span has the code alone.
func finish(span trace.Span, err error) {
	if code := codeOf(err); code != codes.OK {
		span.SetStatus(otelcodes.Error, code.String())
	}
	span.End()
}

// codeOf returns the code of a call's error.
func codeOf(err error) codes.Code {
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return status.FromContextError(err).Code()
}

// failed reports that a server could not do what a call asked for. Refusals of what is wrong or not
// allowed are no failures.
func failed(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal,
		codes.DataLoss, codes.Unknown, codes.Aborted:
		return true
	}
	return false
}

// carrier is metadata as the propagator reads and writes it.
type carrier metadata.MD

var _ propagation.TextMapCarrier = carrier(nil)

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// Package calltrace makes the spans of the SDK, by the API of OpenTelemetry: one for a call, and one
// for each request that is sent to a node because of the call. A request carries the span that waits
// for it (kvpb.Request.trace), so that the server's spans belong to the same trace.
//
// Whether a call is traced is decided by the sampler of the application's TracerProvider. A request
// has a span only if the span in its context is sampled: what is not sampled costs a look at the
// context. Without a TracerProvider there is no Tracer, and nothing is looked at.
//
// A span never has keys or values. The package imports of Tidemark only the messages.
package calltrace

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Name is the name of the instrumentation.
const Name = "github.com/tidemarkdb/tidemark/kv"

// Tracer makes spans. A nil Tracer makes none.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer; nil if there is no provider.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(Name)}
}

// Span is a span, or none. The zero value is none.
type Span struct {
	span trace.Span
	// outer is the span in the context in which the span began.
	outer trace.SpanContext
}

// Within returns a context with the span, if ctx has the span in which this one began. So a caller
// that knows only its own context makes calls within the span, and spans of its own keep their place.
func (s Span) Within(ctx context.Context) context.Context {
	if s.span == nil || !trace.SpanContextFromContext(ctx).Equal(s.outer) {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Call begins the span of a call of the SDK. The spans of its requests are in the context.
func (t *Tracer) Call(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	outer := trace.SpanContextFromContext(ctx)
	ctx, span := t.tracer.Start(ctx, name) // of the kind "internal", which is the default
	return ctx, Span{span, outer}
}

// Request begins the span of a request to a node, if the context has a sampled span, and has the
// request carry the span.
func (t *Tracer) Request(ctx context.Context, r *kvpb.Request, node uint64) Span {
	if t == nil {
		return Span{}
	}
	r.Trace = nil // the request may be another attempt
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return Span{}
	}
	_, span := t.tracer.Start(ctx, "request "+r.CommandName(),
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.Int64("tidemark.node", int64(node)),
			attribute.Int64("tidemark.partition", int64(r.Partition))))
	r.Trace = Encode(span.SpanContext())
	return Span{span: span}
}

// End ends a span of a call. failure says in a few words, without keys, how the call failed; empty:
// it did not.
func (s Span) End(failure string) {
	if s.span == nil {
		return
	}
	if failure != "" {
		s.span.SetStatus(codes.Error, failure)
	}
	s.span.End()
}

// Answered ends the span of a request with its answer, or with the reason why there is none.
func (s Span) Answered(response *kvpb.Response, err error) {
	if s.span == nil {
		return
	}
	switch {
	case err != nil:
		s.span.SetStatus(codes.Error, "no answer")
	case response.GetError() != nil:
		// The message may name keys.
		s.span.SetStatus(codes.Error, strings.ToLower(response.Error.Code.String()))
	}
	s.span.End()
}

// encodedBytes is the length of an encoded span: trace id, span id, flags.
const encodedBytes = 16 + 8 + 1

// Encode returns a span as Request.trace has it.
func Encode(c trace.SpanContext) []byte {
	id, span := c.TraceID(), c.SpanID()
	out := append(make([]byte, 0, encodedBytes), id[:]...)
	return append(append(out, span[:]...), byte(c.TraceFlags()))
}

// Decode reads Request.trace. It returns false if that is no span.
func Decode(b []byte) (trace.SpanContext, bool) {
	if len(b) != encodedBytes {
		return trace.SpanContext{}, false
	}
	c := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(b[:16]),
		SpanID: trace.SpanID(b[16:24]), TraceFlags: trace.TraceFlags(b[24]), Remote: true})
	return c, c.IsValid()
}

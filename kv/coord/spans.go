package coord

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TracerProvider has calls traced that are made within a sampled span: each has a span of its own,
// and servers that export traces add theirs. Spans have no keys, values or users. A traced call
// goes by gRPC. Renewals of sessions are not traced. It is for Connect.
func TracerProvider(p trace.TracerProvider) Option {
	return func(c *config) {
		if p == nil {
			return
		}
		t := tracer{p.Tracer("github.com/tidemarkdb/tidemark/kv/coord")}
		c.etcd.DialOptions = append(c.etcd.DialOptions, grpc.WithChainUnaryInterceptor(t.call),
			grpc.WithChainStreamInterceptor(t.stream))
	}
}

// tracer makes the spans of a client's calls.
type tracer struct{ trace.Tracer }

// call implements grpc.UnaryClientInterceptor.
func (t tracer) call(ctx context.Context, method string, request, answer any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return invoke(ctx, method, request, answer, conn, options...)
	}
	ctx, span := t.begin(ctx, method)
	err := invoke(ctx, method, request, answer, conn, options...)
	end(span, err)
	return err
}

// stream implements grpc.StreamClientInterceptor. The span is that of the stream's begin: a stream
// may last as long as its client.
func (t tracer) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn,
	method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return open(ctx, d, conn, method, options...)
	}
	ctx, span := t.begin(ctx, method)
	s, err := open(ctx, d, conn, method, options...)
	end(span, err)
	return s, err
}

// begin begins a span, and has the call name it.
func (t tracer) begin(ctx context.Context, method string) (context.Context, trace.Span) {
	// Methods begin with a slash.
	ctx, span := t.Start(ctx, method[1:], trace.WithSpanKind(trace.SpanKindClient))
	named := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, named)
	for field, value := range named {
		ctx = metadata.AppendToOutgoingContext(ctx, field, value)
	}
	return ctx, span
}

// end ends a span. The text of an error may name keys, so the span has the code alone.
func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, status.Code(err).String())
	}
	span.End()
}

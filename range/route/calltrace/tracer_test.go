package calltrace

import (
	"context"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func TestEncoded(t *testing.T) {
	c := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{TraceID: oteltrace.TraceID{1, 15: 2},
		SpanID: oteltrace.SpanID{3, 7: 4}, TraceFlags: oteltrace.FlagsSampled, Remote: true})
	if got, ok := Decode(Encode(c)); !ok || !got.Equal(c) {
		t.Errorf("%v is read as %v", c, got)
	}
	for _, wrong := range [][]byte{nil, make([]byte, 24), make([]byte, 25), make([]byte, 26)} {
		if _, ok := Decode(wrong); ok {
			t.Errorf("%d bytes are a span", len(wrong))
		}
	}
}

func TestRequestsCarryTheirSpans(t *testing.T) {
	e := tracetest.NewInMemoryExporter()
	tracer := New(trace.NewTracerProvider(trace.WithSyncer(e)))
	ctx, call := tracer.Call(t.Context(), "call")
	r := &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("secret")}}}
	request := tracer.Request(ctx, r, 7)
	carried, ok := Decode(r.Trace)
	if !ok || !carried.IsSampled() {
		t.Fatalf("the request carries %v", r.Trace)
	}
	request.Answered(nil, errors.New("broken"))
	inner, _ := tracer.Call(call.Within(t.Context()), "within")
	if oteltrace.SpanContextFromContext(inner).TraceID() != carried.TraceID() {
		t.Error("a call within the span belongs to another trace")
	}
	call.End("")
	spans := e.GetSpans()
	if len(spans) != 2 || spans[0].Name != "request get" ||
		spans[0].SpanContext.SpanID() != carried.SpanID() ||
		spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() {
		t.Errorf("the spans are %+v", spans)
	}
	if tracer.Request(t.Context(), r, 7); r.Trace != nil {
		t.Error("a request outside of a span carries the span of an earlier attempt")
	}
}

// BenchmarkCall is what a call with one request costs: without traces, and with one in 100 traced.
func BenchmarkCall(b *testing.B) {
	for name, tracer := range map[string]*Tracer{
		"off": nil,
		"1%": New(trace.NewTracerProvider(trace.WithSampler(trace.TraceIDRatioBased(0.01)),
			trace.WithBatcher(tracetest.NewNoopExporter()))),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{}}}
			for b.Loop() {
				ctx, call := tracer.Call(context.Background(), "tidemark get")
				tracer.Request(ctx, r, 1).Answered(&kvpb.Response{}, nil)
				call.End("")
			}
		})
	}
}

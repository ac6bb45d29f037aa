package callspans

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	not     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func recorded() (*tracetest.InMemoryExporter, *trace.TracerProvider) {
	e := tracetest.NewInMemoryExporter()
	return e, trace.NewTracerProvider(trace.WithSyncer(e),
		trace.WithSampler(trace.AlwaysSample()))
}

func TestCallsThatAreTraced(t *testing.T) {
	for name, x := range map[string]struct {
		given  string
		rate   float64
		takes  time.Duration
		err    error
		stream bool
		traced bool
	}{
		"nothing":                  {},
		"its client traces it":     {given: sampled, traced: true},
		"its client does not":      {given: not},
		"what it has is none":      {given: "hello"},
		"slow":                     {takes: time.Second, traced: true},
		"slow and not sampled":     {given: not, takes: time.Second, traced: true},
		"a stream that lasts":      {takes: time.Hour, stream: true},
		"failed":                   {err: status.Error(codes.Unavailable, "about secret"), traced: true},
		"late":                     {err: context.DeadlineExceeded, traced: true},
		"refused":                  {err: status.Error(codes.InvalidArgument, "about secret")},
		"given up by its client":   {err: context.Canceled},
		"sampled by rate":          {rate: 1, traced: true},
		"a stream that is sampled": {given: sampled, stream: true, traced: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, p := recorded()
			m := New(Config{Provider: p, Server: "s:1", Rate: x.rate, Slow: 500 * time.Millisecond})
			ctx := t.Context()
			if x.given != "" {
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("traceparent", x.given))
			}
			begin := m.Call
			if x.stream {
				begin = m.Stream
			}
			_, end := begin(ctx, "etcdserverpb.KV/Put")
			time.Sleep(x.takes)
			end(x.err)
			spans := e.GetSpans()
			if traced := len(spans) == 1; traced != x.traced || len(spans) > 1 {
				t.Fatalf("%s: %d spans", name, len(spans))
			}
			if !x.traced {
				return
			}
			s := spans[0]
			if s.Name != "etcdserverpb.KV/Put" || s.EndTime.Sub(s.StartTime) != x.takes ||
				strings.Contains(fmt.Sprint(s), "secret") {
				t.Errorf("%s: %+v", name, s)
			}
			if of := s.Parent.SpanID().String(); x.given != "" && of != "b7ad6b7169203331" {
				t.Errorf("%s: the parent is %s", name, of)
			}
		})
	}
}

// TestSpanIsPassedOn: who passes a call on with the fields that it has received is the parent.
func TestSpanIsPassedOn(t *testing.T) {
	e, p := recorded()
	m := New(Config{Provider: p})
	given := metadata.Pairs("traceparent", sampled, "token", "x")
	ctx, end := m.Call(metadata.NewIncomingContext(t.Context(), given), "first")
	_, endOther := m.Call(ctx, "second")
	endOther(nil)
	end(nil)
	spans := e.GetSpans()
	if len(spans) != 2 || spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() {
		t.Errorf("%+v", spans)
	}
	if got := given.Get("traceparent"); got[0] != sampled {
		t.Errorf("the caller's metadata has changed to %v", got)
	}
	if got := metadata.ValueFromIncomingContext(ctx, "token"); len(got) != 1 {
		t.Errorf("the token is %v", got)
	}
}

// TestFailuresAreBounded: when everything fails, some calls have spans.
func TestFailuresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, p := recorded()
		m := New(Config{Provider: p})
		for range 1000 {
			_, end := m.Call(t.Context(), "x")
			end(errors.New("failed"))
			time.Sleep(time.Millisecond)
		}
		if n := len(e.GetSpans()); n < 90 || n > 110 {
			t.Errorf("%d spans of 1,000 failures in a second", n)
		}
	})
}

// BenchmarkNotTraced is what a call pays that has no span.
func BenchmarkNotTraced(b *testing.B) {
	_, p := recorded()
	m := New(Config{Provider: p, Slow: time.Second})
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("token", "x"))
	b.ReportAllocs()
	for b.Loop() {
		_, end := m.Call(ctx, "etcdserverpb.KV/Put")
		end(nil)
	}
}

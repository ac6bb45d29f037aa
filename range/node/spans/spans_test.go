package spans

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// answered has a maker make the spans of a put that has waited for a lock.
func answered(m *Maker, carried []byte, code kvpb.ErrorCode, slow bool) {
	arrived := time.Now().Add(-time.Second)
	p := &config.Pending{Arrived: arrived, Timing: timing.Start(arrived), Request: &kvpb.Request{
		Partition: 9, Trace: carried, Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{
			Key: []byte("secret")}}}}
	defer p.Timing.Release()
	p.Timing.EnterAt(timing.Lock, arrived.Add(10*time.Millisecond))
	p.Timing.EnterAt(timing.Evaluate, arrived.Add(900*time.Millisecond))
	p.Timing.Total()
	response := &kvpb.Response{}
	if code != 0 {
		response.Error = &kvpb.Error{Code: code, Message: "about secret"}
	}
	m.Answered(p, command.Of(p.Request), response, slow)
}

func recorded() (*tracetest.InMemoryExporter, *trace.TracerProvider) {
	e := tracetest.NewInMemoryExporter()
	return e, trace.NewTracerProvider(trace.WithSyncer(e))
}

func TestRequestsThatAreTraced(t *testing.T) {
	span := func(flags oteltrace.TraceFlags) []byte {
		return calltrace.Encode(oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{2}, TraceFlags: flags}))
	}
	for name, x := range map[string]struct {
		carried []byte
		code    kvpb.ErrorCode
		slow    bool
		rate    float64
		traced  bool
	}{
		"nothing":                 {},
		"its client traces it":    {carried: span(oteltrace.FlagsSampled), traced: true},
		"its client does not":     {carried: span(0)},
		"what it carries is none": {carried: []byte("hello")},
		"slow":                    {slow: true, traced: true},
		"failed":                  {code: kvpb.ErrorCode_OVERLOADED, traced: true},
		"refused":                 {code: kvpb.ErrorCode_NOT_LEADER},
		"sampled by rate":         {rate: 1, traced: true},
	} {
		e, p := recorded()
		answered(New(p, 3, x.rate), x.carried, x.code, x.slow)
		spans := e.GetSpans()
		if !x.traced {
			if len(spans) > 0 {
				t.Errorf("%s: %d spans", name, len(spans))
			}
			continue
		}
		if len(spans) != 4 { // queue, lock, evaluate, and the request
			t.Errorf("%s: %d spans", name, len(spans))
			continue
		}
		request := spans[3]
		if whole := request.EndTime.Sub(request.StartTime); whole < time.Second ||
			request.Name != "tidemark.server put" {
			t.Errorf("%s: %s takes %s", name, request.Name, whole)
		}
		if took := spans[1].EndTime.Sub(spans[1].StartTime); spans[1].Name != "lock" ||
			took != 890*time.Millisecond || spans[1].Parent.SpanID() != request.SpanContext.SpanID() {
			t.Errorf("%s: the part %s takes %s", name, spans[1].Name, took)
		}
		if x.carried != nil && (request.SpanContext.TraceID() != oteltrace.TraceID{1} ||
			request.Parent.SpanID() != oteltrace.SpanID{2}) {
			t.Errorf("%s: the request belongs to another trace", name)
		}
		if x.code != 0 && request.Status.Description != "overloaded" {
			t.Errorf("%s: the status is %q", name, request.Status.Description)
		}
	}
}

// However many requests are slow, few of them are traced.
func TestSlowRequestsAreTracedAtAPace(t *testing.T) {
	e, p := recorded()
	m := New(p, 3, 0)
	now := time.Now()
	due := 0
	for i := range 1000 {
		if m.tail.AllowN(now.Add(time.Duration(i)*time.Millisecond), 1) {
			due++
		}
	}
	if due < 90 || due > 101 {
		t.Errorf("%d spans in a second", due)
	}
	answered(nil, nil, 0, true) // no maker, no span
	if len(e.GetSpans()) != 0 {
		t.Error("there are spans")
	}
}

// Package spans makes the spans of requests that a node has answered, by the API of OpenTelemetry.
//
// A span and its parts are made when the request is answered, from the timing that every request has
// (package timing): what is not traced costs nothing before that. So it is known by then whether the
// request was slow or failed. A request is traced if
//
//   - its client traces it: the request carries the span of the client, which is the parent;
//   - it was slow, or ended with an error that is no part of routing or of conflicts, at most 100 a
//     second;
//   - it is one of those that are sampled by rate.
//
// Spans have no keys, values or names of users.
package spans

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// tailEvery is the least time between two spans of requests that are traced because they were slow or
// failed.
const tailEvery = 10 * time.Millisecond

// Maker makes the spans of a node's requests. A nil Maker makes none. Safe for concurrent use.
type Maker struct {
	tracer trace.Tracer
	node   keys.NodeID
	// rate is the share of requests that are traced by rate.
	rate float64
	// tail limits the spans of requests that were slow or failed.
	tail *rate.Limiter
}

// New returns a Maker, which traces a share of the requests, from 0 to 1, by rate. The provider must
// record all spans: the Maker chooses. Without a provider it is nil.
func New(p trace.TracerProvider, node keys.NodeID, share float64) *Maker {
	if p == nil {
		return nil
	}
	return &Maker{tracer: p.Tracer("github.com/tidemarkdb/tidemark/range/node"), node: node,
		rate: share, tail: rate.NewLimiter(rate.Every(tailEvery), 1)}
}

// Answered makes the spans of a request that is being answered, if it is traced.
func (m *Maker) Answered(p *config.Pending, c *command.Command, response *kvpb.Response, slow bool) {
	if m == nil {
		return
	}
	parent, traced := calltrace.Decode(p.Request.Trace)
	switch {
	case traced && parent.IsSampled():
	case (slow || failed(response)) && m.tail.AllowN(p.Arrived, 1):
	case m.rate > 0 && rand.Float64() < m.rate:
	default:
		return
	}
	ctx := context.Background()
	if traced {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, span := m.tracer.Start(ctx, "tidemark.server "+c.Name, trace.WithTimestamp(p.Arrived),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.Int64("tidemark.node", int64(m.node)),
			attribute.Int64("tidemark.partition", int64(p.Request.Partition))))
	for _, s := range p.Timing.Segments() {
		_, part := m.tracer.Start(ctx, s.Part.String(), trace.WithTimestamp(p.Arrived.Add(s.From)))
		part.End(trace.WithTimestamp(p.Arrived.Add(s.To)))
	}
	if by := p.Timing.Blocked().Transaction; by != "" {
		span.SetAttributes(attribute.String("tidemark.lock.transaction", by))
	}
	if e := response.GetError(); e != nil {
		// The message may name keys.
		span.SetStatus(codes.Error, strings.ToLower(e.Code.String()))
	}
	span.End(trace.WithTimestamp(p.Arrived.Add(p.Timing.Elapsed())))
}

// failed reports that a request ended with an error that operators may want to see. Refusals that
// are part of routing, and conflicts of transactions, are none.
func failed(response *kvpb.Response) bool {
	switch e := response.GetError(); e.GetCode() {
	case kvpb.ErrorCode_OVERLOADED, kvpb.ErrorCode_DEADLINE_EXCEEDED, kvpb.ErrorCode_DISK_FULL,
		kvpb.ErrorCode_OUTCOME_UNKNOWN, kvpb.ErrorCode_NODE_UNHEALTHY, kvpb.ErrorCode_CLOCK_SKEW,
		kvpb.ErrorCode_REPLICA_DAMAGED:
		return e != nil
	}
	return false
}

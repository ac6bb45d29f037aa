package consumer

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Move changes a consumer as requested. others is the number of other consumers of the keyspace.
// The position may be ahead of the latest time in now by at most ahead. An error is a status for
// the client that gives the reason. In that case the position has not changed.
func (c Record) Move(
	r *clusterpb.SetConsumerRequest, others int, now Times, ahead time.Duration,
) error {
	refuse := func(code codes.Code, format string, args ...any) error {
		return status.Errorf(code, "consumer %s: "+format,
			append([]any{keys.Pretty([]byte(r.Name))}, args...)...)
	}
	to := wire.FromClusterTimestamp(r.Position)
	fresh := c.Revision == 0
	switch {
	case fresh && to.IsZero():
		return refuse(codes.InvalidArgument, "it does not exist yet, and a new one needs a position")
	case fresh && others >= MaxOfKeyspace:
		return refuse(codes.ResourceExhausted, "keyspace %s has %d consumers, and may have no more; "+
			"`tidemark consumers delete` removes one", r.Keyspace, others)
	case to.Wall > now.Latest().Add(ahead).UnixNano():
		return refuse(codes.InvalidArgument, "its position %s is in the future: the core's clock "+
			"shows %s", to, hlc.FromTime(now.Latest()))
	case r.Span != nil && !fresh && !r.Reset_ && !Span(c.Span).Equal(Span(r.Span)):
		return refuse(codes.FailedPrecondition, "it is of %s, and not of %s; use another name, or "+
			"delete it or reset it, and read everything anew", keys.DescribeSpan(Span(c.Span)),
			keys.DescribeSpan(Span(r.Span)))
	case c.TooOld && !r.Reset_:
		return refuse(codes.OutOfRange, "it fell behind by more than its keep, %s, at %s, and history "+
			"is not kept for it any more; read everything anew, and reset it or delete it", c.Keep(),
			c.At())
	case to.IsZero():
		to = c.At()
	case to.Less(c.At()) && !r.Reset_:
		return refuse(codes.FailedPrecondition, "its position is %s already, and %s lies before it; "+
			"another process may use the same name; a reset moves it back", c.At(), to)
	}
	// An existing consumer that continues is not refused because of its position. Overdue decides
	// later whether the consumer is dropped.
	asks := fresh || r.Reset_ || r.KeepMillis != 0 && r.KeepMillis < c.KeepMillis
	if r.KeepMillis != 0 {
		c.KeepMillis = r.KeepMillis
	}
	if asks && to.Wall < now.Likely().Add(-c.Keep()).UnixNano() {
		return refuse(codes.OutOfRange, "its position %s is older than %s, for which history is kept "+
			"for it; begin at a later one, or have it kept for longer, up to %s", to, c.Keep(),
			keys.MaxConsumerKeep)
	}
	if r.Span != nil {
		c.Span = r.Span
	}
	c.Position, c.UpdatedUnixMs, c.TooOld = wire.ToClusterTimestamp(to), now.Wall.UnixMilli(), false
	return nil
}

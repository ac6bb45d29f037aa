package route

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// observed is a call that has begun: its span, and what is counted when it ends. The zero value, for
// senders without traces and metrics, does nothing.
type observed struct {
	span  calltrace.Span
	kind  *kindMetrics
	began time.Time
	calls int
}

// observe begins a call, or several calls of a kind that are made together. The spans of its requests
// are in the context.
func (s *Sender) observe(ctx context.Context, r *kvpb.Request, calls int) (context.Context, observed) {
	if s.cfg.Tracer == nil && s.metrics.kinds == nil {
		return ctx, observed{}
	}
	name := r.CommandName()
	o := observed{kind: s.metrics.kinds[name], calls: calls}
	if s.cfg.Tracer != nil {
		ctx, o.span = s.cfg.Tracer.Call(ctx, "tidemark "+name)
	}
	if o.kind != nil {
		o.began = time.Now()
	}
	return ctx, o
}

// end ends the call; err is how it ended.
func (o *observed) end(err error) {
	o.span.End(failureOf(err))
	if o.kind == nil {
		return
	}
	o.kind.calls.Add(float64(o.calls))
	o.kind.seconds.Add(float64(o.calls) * time.Since(o.began).Seconds())
	if err != nil {
		o.kind.failures.Inc()
	}
}

// failureOf says how a call has failed, for its span: without keys, which messages of errors have.
func failureOf(err error) string {
	var e *Error
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &e):
		return "failed"
	case e.OutcomeUnknown:
		return "outcome unknown"
	}
	return strings.ToLower(e.Code.String())
}

// kindMetrics count the calls of a kind.
type kindMetrics struct{ calls, seconds, failures, retries *metric.Counter }

// newKindMetrics makes the metrics of all kinds of calls, and the collectors of them.
func newKindMetrics() (map[string]*kindMetrics, []metric.Collector) {
	calls := metric.NewVec("tidemark_client_calls_total",
		"Calls that have ended, by kind; a transaction makes several.", "kind")
	seconds := metric.NewVec("tidemark_client_call_seconds_total",
		"Time that calls have taken, with all attempts, by kind. Those that are made together count "+
			"until the last of them has ended.", "kind")
	failures := metric.NewVec("tidemark_client_call_failures_total",
		"Calls that have ended with an error, by kind; of calls made together, one.", "kind")
	retries := metric.NewVec("tidemark_client_call_retries_total",
		"Attempts of calls that were followed by another one, by kind.", "kind")
	kinds := make(map[string]*kindMetrics)
	for _, name := range kvpb.CommandNames() {
		kinds[name] = &kindMetrics{calls: calls.With(name), seconds: seconds.With(name),
			failures: failures.With(name), retries: retries.With(name)}
	}
	return kinds, []metric.Collector{calls, seconds, failures, retries}
}

package replica

import (
	"iter"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Span locks are for transactions whose attempts fail again and again because others write where
// they read. The next attempt holds the spans before it reads them, and then runs alone there.
//
// They are volatile locks (volatile.go): in the leader's memory only, and they prove nothing. What
// was read under them is read from what is applied, and validated when the transaction commits,
// like all other reads. So the end of a leadership, which ends them, costs at most one more
// attempt.
//
// A span is held from the moment at which its request is evaluated and no other transaction holds a
// part of it: writes that come later wait. The request is answered when the locks are gone that
// others had acquired on keys of the span before. If it waited for these first, there would always
// be new ones. That two transactions wait for each other that way is for wound-wait to solve, by
// age.
//
// A transaction older than all that hold parts of its spans holds the rest at once. A younger one
// waits without holding anything.
//
// The bounds: a request that would hold too much is answered at once, without `held`, and its
// transaction goes on without (concurrency.Config).

// holdSpans holds spans, and answers when nothing of others is left in them that may yet be
// written.
func (e *evaluation) holdSpans(w *write, c *kvpb.PrepareRequest) error {
	r := e.r
	p := preparation{e: e, w: w, of: w.transaction(),
		ts: hlc.Max(e.Clock, hlc.Max(rpc.FromTimestamp(c.GetAtLeast()), w.session.Next()))}
	switch p.acquireSpans(c.HoldSpans) {
	case spansLost:
		e.over = true
		return e.wrote(w, false, nil, nil)
	case spansAwaited:
		return nil
	case spansRefused:
		r.node.Metrics.spansRefused.Inc()
		e.answerRead(w, p.response(), 0)
		return nil
	}
	response := p.response()
	response.GetPrepare().Held, response.GetPrepare().Leadership = true, e.leadership()
	e.answerRead(w, response, 0)
	return nil
}

// spansOutcome is what came of a request to hold spans.
type spansOutcome int

const (
	spansHeld spansOutcome = iota
	// spansAwaited: the request waits.
	spansAwaited
	// spansRefused: they are too many.
	spansRefused
	// spansLost: the leadership epoch is over.
	spansLost
)

// acquireSpans acquires the locks of spans, or has the request wait.
func (p *preparation) acquireSpans(spans []*kvpb.KeySpan) spansOutcome {
	e, r := p.e, p.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.is(e.epoch) {
		return spansLost
	}
	all := eachSpan(spans)
	l, key, oldest := r.mu.locks.SpansInTheWay(all, p.of.Begun, p.of.ID)
	acquired := oldest && r.mu.locks.AcquireSpans(all, p.of,
		concurrency.State{Kind: kvpb.Mutation_LOCK, Prepared: p.ts, Request: p.request(),
			Acquired: p.silentSince()})
	switch {
	case l != nil:
		e.waitLocked(p.w, l, key, concurrency.UntilGone)
		return spansAwaited
	case !acquired:
		return spansRefused
	}
	for start, end := range all {
		if l := r.mu.locks.KeyIn(text(start), text(end), p.of.ID); l != nil {
			e.waitLocked(p.w, l, l.Key, concurrency.UntilGone)
			return spansAwaited
		}
	}
	// All that was written here is applied or in flight, and none of it is above.
	p.ts = hlc.Max(p.ts, hlc.Max(r.mu.applied.highest, r.mu.written))
	return spansHeld
}

func eachSpan(spans []*kvpb.KeySpan) iter.Seq2[[]byte, []byte] {
	return func(yield func(start, end []byte) bool) {
		for _, s := range spans {
			if !yield(s.GetStart(), s.GetEnd()) {
				return
			}
		}
	}
}

// spanOnWritesLocked is the first span lock in the way of a transaction's mutations, and the key
// that lies in it.
func (r *Replica) spanOnWritesLocked(mutations []*kvpb.Mutation, own txn.ID) (*lock, []byte) {
	if r.mu.locks.Spans() == 0 {
		return nil, nil
	}
	for _, m := range mutations {
		if m.Kind == kvpb.Mutation_UNLOCK {
			continue
		}
		if l := r.mu.locks.SpanOver(text(m.Key), own); l != nil {
			return l, m.Key
		}
	}
	return nil, nil
}

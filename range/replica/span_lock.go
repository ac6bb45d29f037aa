package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/locks"
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
// others had laid on keys of the span before. If it waited for these first, there would always be
// new ones. That two transactions wait for each other that way is for wound-wait to solve, by age.
//
// A transaction older than all that hold parts of its spans holds the rest at once: it would wait until all
// of them are free at one moment otherwise, which among many who hold one each may never come. A
// younger one waits without holding anything.
//
// The bounds: a request that would hold too much is answered at once, without `held`, and its
// transaction goes on without (span_budget.go).

// maxHoldSpans bounds the spans of one request.
const maxHoldSpans = 64

// holdSpans holds spans, and answers when nothing of others is left in them that may yet be
// written.
func (e *evaluation) holdSpans(w *write, c *kvpb.PrepareRequest) error {
	r := e.r
	p := preparation{e: e, w: w, of: w.transaction(), ts: hlc.Max(e.clock, hlc.Max(rpc.FromTimestamp(c.GetAtLeast()), w.session.Next()))}
	r.mu.Lock()
	if r.mu.reign != e.reign {
		r.mu.Unlock()
		e.over = true
		return e.wrote(w, false, nil, nil)
	}
	l, key, oldest := p.spansInTheWayLocked(c.HoldSpans)
	taken := oldest && p.takeSpansLocked(c.HoldSpans)
	switch {
	case l != nil:
		e.parkAtLocked(w, l, key, locks.UntilGone)
		return nil
	case !taken:
		r.mu.Unlock()
		r.node.Metrics.spansRefused.Inc()
		e.answerRead(w, p.response(), 0)
		return nil
	}
	for _, s := range c.HoldSpans {
		if l := r.keyLockInLocked(text(s.Start), text(s.End), p.of.ID); l != nil {
			e.parkLocked(w, l, locks.UntilGone)
			return nil
		}
	}
	// All that was written here is applied or in flight, and none of it is above.
	p.ts = hlc.Max(p.ts, hlc.Max(r.mu.applied.highest, r.mu.written))
	r.mu.Unlock()
	response := p.response()
	response.GetPrepare().Held, response.GetPrepare().Leadership = true, e.leadership()
	e.answerRead(w, response, 0)
	return nil
}

// spansInTheWayLocked is the first span lock of another transaction that has keys in common with the
// spans, and the first such key. oldest says that the transaction is older than all that have one.
func (p *preparation) spansInTheWayLocked(spans []*kvpb.KeySpan) (first *lock, key string, oldest bool) {
	oldest = true
	for _, s := range spans {
		p.e.r.mu.locks.SpansIn(text(s.Start), text(s.End), func(l *lock) bool {
			x := l.Transaction
			if x.ID == p.of.ID {
				return true
			}
			if first == nil {
				first, key = l, string(max(text(s.Start), l.Key))
			}
			oldest = txn.Older(p.of.Begun, p.of.ID, x.Begun, x.ID)
			return oldest
		})
		if !oldest {
			break
		}
	}
	return first, key, oldest
}

// takeSpansLocked holds what no other transaction holds of spans, all of that or nothing.
func (p *preparation) takeSpansLocked(spans []*kvpb.KeySpan) bool {
	r := p.e.r
	count, bytes := 0, 0
	for _, s := range spans {
		n, size := r.mu.locks.SpanNeed(text(s.Start), text(s.End))
		count, bytes = count+n, bytes+size
	}
	switch {
	case count == 0:
		return true
	case r.mu.locks.Spans()+count > r.node.MaxSpanLocks || !r.node.spans.fits(count, bytes):
		return false
	}
	state := locks.State{Kind: kvpb.Mutation_LOCK, Prepared: p.ts, Request: p.request(), Laid: p.laid()}
	for _, s := range spans {
		r.mu.locks.HoldSpan(text(s.Start), text(s.End), p.of, state)
	}
	r.locksChangedLocked()
	return true
}

// spanInTheWayLocked is the first span lock of another transaction that has keys in common with
// [start, end).
func (r *Replica) spanInTheWayLocked(start, end string, own txn.ID) (found *lock) {
	r.mu.locks.SpansIn(start, end, func(l *lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
}

// spanOfOtherLocked is the span lock of another transaction that a key lies in; nil if there is
// none.
func (r *Replica) spanOfOtherLocked(key []byte, own txn.ID) *lock {
	if l := r.mu.locks.SpanAt(text(key)); l != nil && l.Transaction.ID != own {
		return l
	}
	return nil
}

// keyLockInLocked is the first lock of another transaction on a key of [start, end).
func (r *Replica) keyLockInLocked(start, end string, own txn.ID) (found *lock) {
	r.mu.locks.Ascend(start, end, func(l *lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
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
		if l := r.spanOfOtherLocked(m.Key, own); l != nil {
			return l, m.Key
		}
	}
	return nil, nil
}

// lockAtLocked is the lock that a key is under: its own, or that of the span that it lies in.
func (r *Replica) lockAtLocked(key string) *lock {
	if l := r.mu.locks.Get(key); l != nil {
		return l
	}
	return r.mu.locks.SpanAt(key)
}

package command

import (
	"iter"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Span locks are for transactions whose attempts fail again and again because others write where
// they read. The next attempt holds the spans before it reads them, and then runs alone there.
//
// They are volatile locks (eval/unreplicated_lock.go): in the leader's memory only, and they
// prove nothing. What was read under them is read from what is applied, and validated when the
// transaction commits, like all other reads. So the end of a leadership, which ends them, costs at
// most one more attempt.
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
func (p *preparation) holdSpans() {
	e, held := p.e, false
	e.Coordination.Locks(func(locks *concurrency.Manager, stands bool) {
		if !stands {
			e.Outcome = EpochOver // nothing of this has an effect
			return
		}
		held = p.acquireSpans(locks)
	})
	if e.Outcome != Undecided {
		return
	}
	response := p.response(p.at, nil)
	if held {
		response.GetPrepare().Held = true
		response.GetPrepare().Leadership = e.Coordination.Leadership()
	} else {
		e.Coordination.Count(SpansRefused)
	}
	e.Answer(response, 0)
}

// acquireSpans acquires the locks of the spans, unless they are too many or the request waits.
func (p *preparation) acquireSpans(locks *concurrency.Manager) (held bool) {
	e, all := p.e, EachSpan(p.c.GetHoldSpans())
	l, key, oldest := locks.SpansInTheWay(all, p.of.Begun, p.of.ID)
	acquired := oldest && locks.AcquireSpans(all, p.of,
		concurrency.State{Kind: kvpb.Mutation_LOCK, Prepared: p.at, Request: e.Request,
			Acquired: e.Coordination.SilentSince()})
	switch {
	case l != nil:
		e.Wait(l, key, concurrency.UntilGone)
		return false
	case !acquired:
		return false
	}
	for start, end := range all {
		if l := locks.KeyIn(request.Text(start), request.Text(end), p.of.ID); l != nil {
			e.Wait(l, l.Key, concurrency.UntilGone)
			return false
		}
	}
	// All that was written here is applied or in flight, and none of it is above.
	p.at = hlc.Max(p.at, e.Coordination.Highest())
	return true
}

// EachSpan goes through the bounds of spans.
func EachSpan(spans []*kvpb.KeySpan) iter.Seq2[[]byte, []byte] {
	return func(yield func(start, end []byte) bool) {
		for _, s := range spans {
			if !yield(s.GetStart(), s.GetEnd()) {
				return
			}
		}
	}
}

// spanOnWrites is the first span lock in the way of a transaction's mutations, and the key that
// lies in it.
func spanOnWrites(locks *concurrency.Manager, mutations []*kvpb.Mutation,
	own txn.ID) (*concurrency.Lock, []byte) {
	if locks.Spans() == 0 {
		return nil, nil
	}
	for _, m := range mutations {
		if m.Kind == kvpb.Mutation_UNLOCK {
			continue
		}
		if l := locks.SpanOver(request.Text(m.Key), own); l != nil {
			return l, m.Key
		}
	}
	return nil, nil
}

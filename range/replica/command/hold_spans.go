package command

import (
	"iter"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Span locks are for transactions whose attempts fail repeatedly because others write where they
// read. The next attempt locks the spans before it reads them, and then runs alone there.
//
// They are volatile locks (eval/unreplicated_lock.go): they exist in the leader's memory only, and
// prove nothing. Reads under them read the applied state, and are validated when the transaction
// commits, like all other reads. So when a leadership ends, and its span locks with it, that costs
// the transaction at most one more attempt.
//
// A span is locked as soon as its request is evaluated and no other transaction holds a part of it:
// later writes wait. The request is answered when the locks that others had acquired before on keys
// of the span are gone. If it waited for them first, there would always be new ones. Two
// transactions may wait for each other this way; wound-wait resolves that by age.
//
// A transaction older than all that hold parts of its spans locks the rest at once. A younger one
// waits without locking anything.
//
// A request that would exceed the bounds (concurrency.Config) is answered at once, without `held`,
// and its transaction goes on without span locks.

// holdSpans locks spans, and answers when no other transaction's lock there may still be written.
func (p *preparation) holdSpans() {
	e, held := p.e, false
	e.Coordination.Locks(func(locks *concurrency.Manager, stands bool) {
		if !stands {
			e.Outcome = EpochOver // nothing has an effect any more
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
	// All versions written here are applied or in flight; none is above this timestamp.
	p.at = hlc.Max(p.at, e.Coordination.Highest())
	return true
}

// EachSpan iterates over the bounds of spans.
func EachSpan(spans []*kvpb.KeySpan) iter.Seq2[[]byte, []byte] {
	return func(yield func(start, end []byte) bool) {
		for _, s := range spans {
			if !yield(s.GetStart(), s.GetEnd()) {
				return
			}
		}
	}
}

// spanOnWrites returns the first span lock in the way of a transaction's mutations, and the mutated
// key.
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

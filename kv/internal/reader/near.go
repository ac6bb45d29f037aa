package reader

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
)

// Reads that any replica may answer.
//
// A read of one partition is one request: the replica reads at what is closed there, and says when
// that is. One of several partitions is of one moment: each partition is asked what is closed for
// the span (a read of one row, at a timestamp below all locks in the span), and the lowest of that
// is read everywhere, exactly. The requests to a partition stay at one replica, so that the one
// answers that was asked. One that has not closed the moment waits for it, and the leader answers
// at last: an exact moment in the past it always can.
//
// A linearisable read finds its moment as a read without options does, from leaders. Then each
// request is admitted by the leader and answered by the nearest replica (route.Sender.DoFollower);
// one for the pages of a pager.
//
// How old that is. What was acknowledged before a moment lies at or below any node's clock at that
// moment plus twice the maximum clock offset (package conn, "The latest possible moment"). So the
// estimate of the clocks, from above, plus that, less the timestamp of the read, is how old the
// read is at most; and a read that is to be no older than d is one at or above that estimate less
// d.

// exactWait is how long a replica waits for a moment that is asked for.
const exactWait = 100 * time.Millisecond

// Near is one call that any replica may answer; nil: only leaders may. It is not changed.
type Near struct {
	Near route.Near
	// Linearizable: leaders admit what replicas read, of the latest state; Near is not used then.
	Linearizable bool
}

// Past says that the moment of the call is one that replicas have closed, and not the latest.
func (n *Near) Past() bool { return n != nil && !n.Linearizable }

// request is how one request of the call is brought to a replica: at a moment, or, if that is zero,
// at what is closed. single: it is all there is to read.
func (n *Near) request(at hlc.Timestamp, single bool) *route.Near {
	near := n.Near
	if near.At = at; !at.IsZero() {
		near.AtLeast = hlc.Timestamp{}
		near.Wait = max(near.Wait, exactWait)
	}
	near.Stay = !single
	return &near
}

// Part locates a request within its call.
type Part struct {
	// At is the moment; zero: it is chosen by what answers.
	At hlc.Timestamp
	// Whole: it is all there is to read.
	Whole bool
	// admitted, if set, is for a linearisable read by several requests, as in route.Follower.
	admitted *route.Admitted
}

// Do brings a request to its partition: to the leader, or to what the call says. This alone decides
// which.
func (n *Near) Do(ctx context.Context, s *route.Sender, call *route.Call,
	p Part) (route.Answer, error) {
	switch {
	case n == nil:
		return s.Do(ctx, call)
	case n.Linearizable:
		return s.DoFollower(ctx, call,
			&route.Follower{At: p.At, Admitted: p.admitted})
	}
	return s.DoNear(ctx, call, n.request(p.At, p.Whole))
}

// doAll is route.Sender.DoAll for such a call.
func (n *Near) doAll(ctx context.Context, s *route.Sender, calls []*route.Call, at hlc.Timestamp,
	done func(i int, answer route.Answer, err error) error) error {
	if n == nil {
		return s.DoAll(ctx, conn.ParallelRequests, calls, done)
	}
	var mu sync.Mutex
	return conn.InParallel(ctx, len(calls), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		answer, err := n.Do(ctx, s, calls[i], Part{At: at})
		mu.Lock()
		defer mu.Unlock()
		return done(i, answer, err)
	})
}

// nearMoment finds a moment that is closed for a span of several partitions, at the replicas that
// answer: the lowest that they tell, but no lower than the read asks for (what a leader tells that
// answers as a leader may be lower, by its clock). A range keyspace may have partitions that no
// replica answers for, which a scan may never get to: they are left out after a while.
func (k Keyspace) nearMoment(ctx context.Context, parts []*route.Partition,
	span keys.Span, n *Near) (at hlc.Timestamp, err error) {
	inner, done := ctx, context.CancelFunc(func() {})
	if !k.Hashed {
		inner, done = context.WithTimeout(ctx, LeaderWait)
	}
	defer done()
	var mu sync.Mutex
	err = conn.InParallel(inner, len(parts), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		t := &Pager{keyspace: k, hash: parts[i].Hash, near: n,
			rest: span.Intersect(parts[i].Span)}
		for t.over = t.rest.Empty(); !t.over; {
			first, err := t.scanPage(ctx, nil, true, 1, 1)
			if err != nil {
				return err
			}
			mu.Lock()
			if at.IsZero() || first.at.Less(at) {
				at = first.at
			}
			mu.Unlock()
			t.advance(first.answer.Partition, false, nil) // it may have been split since
		}
		return nil
	})
	if err != nil && !at.IsZero() && inner.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return hlc.Max(at, n.Near.AtLeast), err
}

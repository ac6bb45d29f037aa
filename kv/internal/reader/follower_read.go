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
// A read of one partition is one request: the replica reads at its closed timestamp, and returns
// that. A read of several partitions has one timestamp: each partition is asked for its closed
// timestamp of the span (a read of one row, at a timestamp below all locks in the span), and
// everything is read exactly at the lowest of these. The requests to a partition stay at one
// replica, so that the replica that was asked also answers. A replica that has not closed the
// timestamp waits for it; at last the leader answers, which it always can for an exact timestamp in
// the past.
//
// A linearisable read finds its timestamp like a read without options, from leaders. Then the
// leader admits each request and the nearest replica answers it (route.Sender.DoFollower); the
// pages of a pager are admitted once.
//
// The age of the answer: what was acknowledged before some time lies at or below any node's clock
// at that time plus twice the maximum clock offset (package conn, "The latest possible timestamp").
// So the upper estimate of the clocks, plus that, less the timestamp of the read, bounds the age of
// the read; and a read that may be at most d old is a read at or above that sum less d.

// exactWait is how long a replica waits until a given timestamp is closed.
const exactWait = 100 * time.Millisecond

// Near is one call that any replica may answer; nil: only leaders may. It is not changed.
type Near struct {
	Near route.Near
	// Linearizable is set if leaders admit reads of the latest state, which replicas then answer;
	// Near is not used then.
	Linearizable bool
}

// Past reports that the call reads at a timestamp that replicas have closed, and not the latest.
func (n *Near) Past() bool { return n != nil && !n.Linearizable }

// request says how one request of the call reaches a replica: at a timestamp, or, if that is zero,
// at the closed one. single is set if the request is the whole read.
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
	// At is the timestamp; zero: the node that answers chooses it.
	At hlc.Timestamp
	// Whole is set if the request is the whole read.
	Whole bool
	// admitted, if set, is for a linearisable read by several requests, as in route.Follower.
	admitted *route.Admitted
}

// Do sends a request to the leader of its partition, or to a replica as the call allows. Only this
// method decides which.
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

// nearSnapshot finds a timestamp that is closed for a span of several partitions, at the replicas
// that answer: the lowest that they return, but not lower than the read asks for (a leader that
// answers as a leader may return a lower one, by its clock). A range keyspace may have partitions
// for which no replica answers, and to which a scan may never get: they are left out after a while.
func (k Keyspace) nearSnapshot(ctx context.Context, parts []*route.Partition,
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
			t.advance(first.answer.Partition, false, nil) // the partition may have been split since
		}
		return nil
	})
	if err != nil && !at.IsZero() && inner.Err() != nil && ctx.Err() == nil {
		err = nil
	}
	return hlc.Max(at, n.Near.AtLeast), err
}

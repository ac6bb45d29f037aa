package kv

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
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

const (
	// sessionWait is how long a replica waits for what the session has seen; exactWait, for a moment
	// that is asked for.
	sessionWait = 100 * time.Millisecond
	exactWait   = 100 * time.Millisecond
)

// nearRead is one call that any replica may answer; nil: only leaders may. It is not changed.
type nearRead struct {
	near route.Near
	// linearizable: leaders admit what replicas read, of the latest state; near is not used then.
	linearizable bool
}

// followerRead is a linearisable call whose data comes from replicas.
var followerRead = &nearRead{linearizable: true}

// past says that the moment of the call is one that replicas have closed, and not the latest.
func (n *nearRead) past() bool { return n != nil && !n.linearizable }

// nearRead begins a call that any replica may answer; nil if only leaders may.
func (c *Client) nearRead(ctx context.Context, ks *route.Keyspace,
	q *query) (*nearRead, error) {
	f := &q.fresh
	if !f.near() {
		return nil, nil
	}
	if f.linearizable {
		return followerRead, nil
	}
	n := &nearRead{}
	switch {
	case q.hasAt:
		n.near.Freshness = route.FreshExact
		return n, nil
	case f.any:
		n.near.Freshness = route.FreshAny
		return n, nil
	case f.own:
		n.near.Freshness, n.near.Wait = route.FreshSession, sessionWait
		n.near.AtLeast = c.conn.Sender.Clock.Seen()
	case f.bounded:
		n.near.Freshness = route.FreshBounded
	default:
		n.near.Freshness = route.FreshNearest
	}
	within := f.within
	if !f.bounded {
		if f.own && !f.nearest {
			return n, nil
		}
		within = NearestStaleness +
			time.Duration(ks.Info.GetClosedTimestampLagMillis())*time.Millisecond
	}
	earliest, latest, err := c.conn.Clocks(ctx)
	if err != nil {
		return nil, err
	}
	least := latest.Add(-within)
	if !least.Less(earliest) {
		return nil, nil // nothing but the latest state is sure to be so fresh
	}
	n.near.AtLeast = hlc.Max(n.near.AtLeast, least)
	return n, nil
}

// request is how one request of the call is brought to a replica: at a moment, or, if that is zero,
// at what is closed. single: it is all there is to read.
func (n *nearRead) request(at Timestamp, single bool) *route.Near {
	near := n.near
	if near.At = at; !at.IsZero() {
		near.AtLeast = Timestamp{}
		near.Wait = max(near.Wait, exactWait)
	}
	near.Stay = !single
	return &near
}

// part says what a request is of a call.
type part struct {
	// at is the moment; zero: it is chosen by what answers.
	at Timestamp
	// whole: it is all there is to read.
	whole bool
	// admitted, if set, is for a linearisable read by several requests, as in route.Follower.
	admitted *route.Admitted
}

// do brings a request to its partition: to the leader, or to what the call says. This alone decides
// which.
func (n *nearRead) do(ctx context.Context, s *route.Sender, call *route.Call,
	p part) (route.Answer, error) {
	switch {
	case n == nil:
		return s.Do(ctx, call)
	case n.linearizable:
		return s.DoFollower(ctx, call,
			&route.Follower{At: p.at, Admitted: p.admitted})
	}
	return s.DoNear(ctx, call, n.request(p.at, p.whole))
}

// doAll is route.Sender.DoAll for such a call.
func (n *nearRead) doAll(ctx context.Context, s *route.Sender, calls []*route.Call, at Timestamp,
	done func(i int, answer route.Answer, err error) error) error {
	if n == nil {
		return s.DoAll(ctx, conn.ParallelRequests, calls, done)
	}
	var mu sync.Mutex
	return conn.InParallel(ctx, len(calls), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		answer, err := n.do(ctx, s, calls[i], part{at: at})
		mu.Lock()
		defer mu.Unlock()
		return done(i, answer, err)
	})
}

// note fills in what a read tells of its moment. latest: leaders answered with the latest state.
func (c *Client) note(q *query, began time.Time, at Timestamp, node keys.NodeID, latest bool) {
	if q.info == nil {
		return
	}
	*q.info = ReadInfo{At: at, Node: uint64(node), Age: c.conn.Age(at)}
	if latest {
		q.info.Age = time.Since(began)
	}
}

// get reads a key, for a call that any replica may answer if n is not nil, and tells when.
func (k *Keyspace) get(ctx context.Context, ks *route.Keyspace, key []byte, q *query,
	n *nearRead) (route.Answer, error) {
	began := time.Now()
	get := &kvpb.GetRequest{Key: key}
	if q.hasAt {
		get.At = toWire(q.at)
	}
	call := &route.Call{Keyspace: ks.ID, Key: key, Slack: lockSlack,
		Request: &kvpb.Request{Command: &kvpb.Request_Get{Get: get}}}
	if q.info != nil && !q.hasAt {
		call.Prepare = route.PreparerFunc(func(_ *route.Partition, l route.Leader) error {
			get.Context = nil
			if l.Term != 0 { // a leader says when it has read if there is a context
				get.Context = &kvpb.ReadContext{Movable: true}
			}
			return nil
		})
	}
	answer, err := n.do(ctx, k.client.conn.Sender, call, part{at: q.at, whole: true})
	if err != nil {
		return answer, err
	}
	at := q.at
	if !q.hasAt {
		if at = fromWire(answer.ReadAt); at.IsZero() {
			at = fromWire(answer.GetGet().GetAt())
		}
	}
	k.client.note(q, began, at, answer.Node, answer.Term != 0 && !q.hasAt)
	return answer, nil
}

// nearMoment finds a moment that is closed for a span of several partitions, at the replicas that
// answer: the lowest that they tell, but no lower than the read asks for (what a leader tells that
// answers as a leader may be lower, by its clock). A range keyspace may have partitions that no
// replica answers for, which a scan may never get to: they are left out after a while.
func (k *Keyspace) nearMoment(ctx context.Context, id keys.KeyspaceID, parts []*route.Partition,
	span keys.Span, n *nearRead) (at Timestamp, err error) {
	ranged := len(parts) > 0 && parts[0].Descriptor.PrefixLength == keys.KeyspacePrefixLength
	inner, done := ctx, context.CancelFunc(func() {})
	if ranged {
		inner, done = context.WithTimeout(ctx, leaderWait)
	}
	defer done()
	var mu sync.Mutex
	err = conn.InParallel(inner, len(parts), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		t := &pager{keyspace: k, id: id, hashed: !ranged, hash: parts[i].Hash, near: n,
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
	return hlc.Max(at, n.near.AtLeast), err
}

package route

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Reads at the nearest replica.
//
// Any replica answers a read at a timestamp that is closed there. DoNear asks the replicas of the
// partition in the order of their nearness (nearness.go), each once, and leaves out those that are
// known to be of no use (package table). Each refusal, and each connection that breaks, sends the
// request to the next one at once; at last it goes to the leader as any read does, without
// Request.replica_read. If that does not lead to an answer either, all of it begins again, after
// the wait that the leader's refusal asks for.
//
// INVARIANT: what is asked of a replica is at least Near.AtLeast, and what a replica answers with
// is compared with that here: an answer that is older is an error.

// Freshness is what a read wants of a replica that does not lead; it is the kind of the read in the
// metrics.
type Freshness uint8

// The kinds of reads.
const (
	// FreshAny takes whatever is closed.
	FreshAny Freshness = iota
	// FreshNearest and FreshBounded are not older than a timestamp; that of the latter was asked for.
	FreshNearest
	FreshBounded
	// FreshSession is at or above what the session has seen.
	FreshSession
	// FreshExact is at the timestamp that the command names.
	FreshExact
	// FreshFeed is of a change feed, at whatever is closed above what the feed has.
	FreshFeed
	// FreshLinearizable is at the timestamp at which the leader has admitted it (follower.go).
	FreshLinearizable
	freshnesses
)

// String is the label of the metrics.
func (f Freshness) String() string {
	return [...]string{"any", "nearest", "bounded", "session", "exact", "feed",
		"linearizable"}[f]
}

// Near says what a read wants that any replica may answer.
type Near struct {
	Freshness Freshness
	// AtLeast is the lowest timestamp at which it may be read; zero: any.
	AtLeast hlc.Timestamp
	// At is the timestamp that the command names; zero: it names none.
	At hlc.Timestamp
	// Wait is how long the replica that is asked first waits for the timestamp to be closed, and for
	// locks in the way, unless it is known already that a nearer one would have had to wait for
	// longer. The others do not wait.
	Wait time.Duration
	// Stay: of replicas that are equally near it goes to the one that other such reads of the
	// partition go to, whatever the load.
	Stay bool
}

// need is the timestamp that has to be closed; zero: none in particular.
func (n *Near) need() hlc.Timestamp { return hlc.Max(n.AtLeast, n.At) }

const (
	// nearMoves is how often a call begins anew with the replicas because the partition is another
	// one.
	nearMoves = 8
	// nearAgain is how long a call waits for a leader to be found before it asks the replicas again.
	nearAgain = 500 * time.Millisecond
)

// errTooOld: a replica did what it should not.
var errTooOld = errors.New("the node read at an earlier timestamp than it was asked to")

// DoNear is Do for a Get, BatchGet, Scan, Count or Changes that any replica may answer. The
// timestamp at which it was read is ReadAt.
func (s *Sender) DoNear(ctx context.Context, call *Call, near *Near) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, &Error{Cause: err, Message: "the request was not sent"}
	}
	ctx, o := s.observe(ctx, call.Request, 1)
	w := nearCall{attempt: s.attempt(ctx, call), near: near}
	answer, err := w.run(ctx)
	o.end(err)
	s.metrics.near.count(near.Freshness, w.outcome(err))
	return answer, err
}

// nearCall is the state of one such call.
type nearCall struct {
	attempt
	near *Near
	// tried are the nodes that were asked about the partition.
	tried []*nodes.Node
	few   [4]*nodes.Node
	// asked counts the replicas that were asked; byLeader: the leader was, as a leader.
	asked    int
	byLeader bool
}

// run makes attempts until one is the last.
func (w *nearCall) run(ctx context.Context) (Answer, error) {
	for {
		if answer, err, over := w.replicas(ctx); over {
			return answer, err
		}
		answer, err, again := w.leader(ctx)
		if again == nil {
			return answer, err
		}
		if err := w.wait(ctx, *again); err != nil {
			return Answer{}, err
		}
	}
}

// outcome is the label of the metrics.
func (w *nearCall) outcome(err error) nearOutcome {
	switch {
	case err != nil:
		return nearFailed
	case w.byLeader:
		return nearLeader
	case w.asked == 1:
		return nearFirst
	}
	return nearOther
}

// replicas asks the replicas of the partition, the nearest first. over says that the call has
// ended.
func (w *nearCall) replicas(ctx context.Context) (answer Answer, err error, over bool) {
	s := w.sender
	w.tried = w.few[:0]
	for moves := 0; ; {
		p, err := w.lookUp()
		if err != nil {
			return Answer{}, nil, false // the way to the leader waits for the table
		}
		if w.at != p {
			if moves++; moves > nearMoves {
				return Answer{}, nil, false
			}
			w.at, w.tried = p, w.few[:0]
		}
		n, leftAlone := s.nearest(p, w.near, w.tried)
		if n == nil {
			if leftAlone {
				s.metrics.near.redirected(redirectLeftAlone)
			}
			return Answer{}, nil, false
		}
		w.tried = append(w.tried, n)
		wait := w.near.Wait
		if w.asked > 0 || leftAlone {
			wait = 0
		}
		answer, err, again := w.ask(ctx, p, n, wait)
		if again == nil {
			return answer, err, true
		}
		if err := ctx.Err(); err != nil {
			return Answer{}, w.ended(err), true
		}
	}
}

// ask makes one attempt at a replica. If another one is to follow, again is not nil.
func (w *nearCall) ask(ctx context.Context, p *Partition, n *nodes.Node,
	//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
	wait time.Duration) (Answer, error, *backoff.Backoff) {
	if w.call.Prepare != nil {
		if err := w.call.Prepare.Prepare(p, Leader{Node: n.ID}); err != nil {
			return Answer{}, w.ended(err), nil
		}
	}
	r := w.call.Request
	r.ReplicaRead = &kvpb.ReplicaRead{WaitMicros: uint32(max(0, wait.Microseconds()))}
	if !w.near.AtLeast.IsZero() {
		r.ReplicaRead.AtLeast = wire.ToTimestamp(w.near.AtLeast)
	}
	w.address(r, p, 0)
	w.asked++
	w.byLeader = false
	l := &table.Hint{Node: n, Incarnation: n.Incarnation()}
	began := time.Now()
	n.Owed.Add(1)
	response, err := n.Lanes[w.lane].Do(ctx, r)
	n.Owed.Add(-1)
	now := time.Now()
	if err != nil {
		w.sender.metrics.near.redirected(redirectBroken)
		p.Hints.Replicas.Refuses(n, now)
		return w.unanswered(ctx, p, l, err)
	}
	if e := response.Error; e != nil {
		return w.refusedNear(p, l, e, now)
	}
	if response.ReadAt != nil {
		at := wire.FromTimestamp(response.ReadAt)
		if at.Less(w.near.AtLeast) {
			w.note(kvpb.ErrorCode_UNKNOWN_ERROR, errTooOld.Error(), p.ID, n.ID)
			return Answer{}, w.ended(nil), nil
		}
		if w.near.At.IsZero() {
			p.Hints.Replicas.Has(n, at, now)
		}
	}
	if response.GetGet() != nil && wait == 0 {
		n.Latency.Observe(now.Sub(began), now)
	}
	w.sender.Clock.Answered(response)
	return Answer{Response: response, Partition: p, Node: n.ID}, nil, nil
}

// refusedNear decides what follows a replica's refusal.
func (a *attempt) refusedNear(p *Partition, l *table.Hint, e *kvpb.Error,
	//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
	now time.Time) (Answer, error, *backoff.Backoff) {
	near, known := a.sender.metrics.near, &p.Hints.Replicas
	switch e.Code {
	case kvpb.ErrorCode_NOT_CLOSED:
		a.noteAnswer(e, p.ID, l.Node.ID)
		if e.Conflict != nil {
			near.redirected(redirectLocked) // that is about a key, and not about the replica
			return Answer{}, nil, &atOnce
		}
		near.redirected(redirectNotClosed)
		known.Lags(l.Node, wire.FromTimestamp(e.Timestamp), now)
		return Answer{}, nil, &atOnce
	case kvpb.ErrorCode_REPLICA_DAMAGED:
		a.noteAnswer(e, p.ID, l.Node.ID)
		if a.damaged == nil {
			a.damaged = make(map[*nodes.Node]string)
		}
		a.damaged[l.Node] = e.Message
		near.redirected(redirectUnhealthy)
		known.Refuses(l.Node, now)
		return Answer{}, nil, &atOnce
	case kvpb.ErrorCode_STALE_EPOCH, kvpb.ErrorCode_KEY_OUT_OF_SPAN:
		near.redirected(redirectEpoch)
	case kvpb.ErrorCode_PARTITION_NOT_FOUND:
		near.redirected(redirectEpoch)
		known.Refuses(l.Node, now)
	case kvpb.ErrorCode_UNAUTHENTICATED, kvpb.ErrorCode_PERMISSION_DENIED:
		// That is about the client, and not about the replica.
	case kvpb.ErrorCode_OVERLOADED, kvpb.ErrorCode_DEADLINE_EXCEEDED, kvpb.ErrorCode_LOCKED:
		near.redirected(redirectOverloaded)
		known.Refuses(l.Node, now)
	default:
		near.redirected(redirectUnhealthy)
		known.Refuses(l.Node, now)
	}
	return a.refused(p, l, true, e)
}

// leader makes one attempt at the leader, as any read does.
//
//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
func (w *nearCall) leader(ctx context.Context) (Answer, error, *backoff.Backoff) {
	w.call.Request.ReplicaRead = nil
	w.byLeader = true
	inner := ctx
	if p, err := w.lookUp(); err == nil && !p.Hints.Current().Usable() {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(ctx, nearAgain)
		defer cancel()
	}
	answer, err, again := w.once(inner)
	if err != nil && inner.Err() != nil && ctx.Err() == nil {
		w.byLeader = false
		return Answer{}, nil, &atOnce // no leader was found; a replica may answer by now
	}
	return answer, err, again
}

package route

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Linearisable reads whose data comes from the nearest replica.
//
// DoFollower asks the leader to admit the read (Request.admit): the leader takes it in as one of
// its own, and answers with a timestamp and an index of the log instead of data. Then the nearest
// replica reads at that timestamp, once it has applied that index. So what travels far is small,
// and what is read by the leader nothing.
//
// The sender asks the leader, and not the replica on its behalf: that is one way to the leader and
// one to the replica either way, and all that the sender knows of leaders, and does to find them,
// serves for this, too.
//
// One replica is asked. If it refuses, lags behind, or does not answer, the leader reads.
//
// INVARIANT: a replica is sent a request only with an admission of the same partition and
// generation that covers all that the request reads, and its answer counts only if it is of the
// admission's timestamp.

const (
	// followerWait is how long a replica waits until it has applied what an admission asks for.
	followerWait = 100 * time.Millisecond
	// followerPatience is how long its answer is waited for, until the leader is asked. Of the time
	// that the caller has left it is half at most.
	followerPatience = 2 * time.Second
)

// errOtherMoment: a replica did what it should not.
var errOtherMoment = errors.New("the node read at another timestamp than the leader had admitted")

// Admitted is a read that a leader has taken in: what it reads does not change any more at its
// timestamp. The zero Admitted is none.
type Admitted struct {
	// By is the leader that has taken it in, and Now what its clock showed; nil if that is not
	// known.
	By  Leader
	Now *kvpb.Timestamp

	// partition is as it was shown then.
	partition *Partition
	admission *kvpb.Admission
}

// holds says that the admission is one for a read at a timestamp in a partition.
func (m *Admitted) holds(p *Partition, at hlc.Timestamp) bool {
	// INVARIANT: the partition as it is shown: by another part of it, or another generation, the
	// read may be of more than was admitted.
	return m.admission != nil && m.partition == p && wire.FromTimestamp(m.admission.At) == at
}

// Follower says how a linearisable read goes to the nearest replica.
type Follower struct {
	// At is the timestamp that the command names; zero: the leader chooses it.
	At hlc.Timestamp
	// Admitted, if set, takes the admission. A later read with the same one, of a part of what the
	// first one was to read, at its timestamp, needs no other.
	Admitted *Admitted
}

// DoFollower is Do for a Get, BatchGet, Scan or Count, which the nearest replica answers as the
// leader would.
func (s *Sender) DoFollower(ctx context.Context, call *Call, follower *Follower) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, &Error{Cause: err, Message: "the request was not sent"}
	}
	ctx, o := s.observe(ctx, call.Request, 1)
	w := followerCall{attempt: s.attempt(ctx, call),
		near: Near{Freshness: FreshLinearizable}}
	answer, err := w.answer(ctx, follower)
	o.end(err)
	outcome := nearLeader
	switch {
	case err != nil:
		outcome = nearFailed
	case w.byReplica:
		outcome = nearFirst
	}
	s.metrics.near.count(FreshLinearizable, outcome)
	return answer, err
}

// followerCall is the state of one such call.
type followerCall struct {
	attempt
	near Near
	// byReplica: a replica has answered.
	byReplica bool
}

// answer has the nearest replica answer, or the leader.
func (w *followerCall) answer(ctx context.Context, f *Follower) (Answer, error) {
	p, err := w.lookUp()
	if err != nil {
		return w.run(ctx) // which waits for the table
	}
	n := w.choose(p)
	if n == nil {
		return w.run(ctx)
	}
	admitted := f.Admitted
	if admitted == nil {
		admitted = new(Admitted)
	}
	if admitted.holds(p, f.At) {
		w.at = p
		if err := w.prepare(p, admitted.By); err != nil {
			return Answer{}, err
		}
	} else {
		answer, err := w.admit(ctx)
		if err != nil || answer.Admission == nil { // a server that admits nothing has read
			return answer, err
		}
		*admitted = Admitted{By: Leader{Node: answer.Node, Term: answer.Term},
			admission: answer.Admission, partition: answer.Partition}
		if !answer.ClockUntrusted {
			admitted.Now = answer.Now
		}
		if answer.Partition != p {
			p = answer.Partition
			n = w.choose(p)
		}
	}
	if n == nil || n.ID == admitted.By.Node {
		return w.run(ctx)
	}
	answer, err, over := w.ask(ctx, p, n, admitted)
	if over {
		return answer, err
	}
	return w.run(ctx)
}

// choose is the nearest replica; nil if that is the leader, or none is of use.
func (w *followerCall) choose(p *Partition) *nodes.Node {
	if len(p.Voters) < 2 {
		return nil
	}
	s := w.sender
	n, leftAlone := s.nearest(p, &w.near, nil)
	if n == nil {
		if leftAlone {
			s.metrics.near.redirected(redirectLeftAlone)
		}
		return nil
	}
	if l := p.Hints.Current(); l.Usable() && l.Node == n {
		return nil
	}
	return n
}

// prepare makes the command fit the partition.
func (w *followerCall) prepare(p *Partition, l Leader) error {
	if w.call.Prepare == nil {
		return nil
	}
	if err := w.call.Prepare.Prepare(p, l); err != nil {
		return w.ended(err)
	}
	return nil
}

// admit has the leader take the read in.
func (w *followerCall) admit(ctx context.Context) (Answer, error) {
	w.call.Request.Admit = true
	defer func() { w.call.Request.Admit = false }()
	return w.run(ctx)
}

// ask makes one attempt at a replica. over says that the call has ended; otherwise the leader is to
// answer.
func (w *followerCall) ask(ctx context.Context, p *Partition, n *nodes.Node,
	admitted *Admitted) (answer Answer, err error, over bool) {
	r, patience := w.call.Request, followerPatience
	if !w.deadline.IsZero() {
		patience = min(patience, time.Until(w.deadline)/2)
	}
	r.ReplicaRead = &kvpb.ReplicaRead{Admission: admitted.admission,
		WaitMicros: uint32(max(0, min(followerWait, patience/2).Microseconds()))}
	defer func() { r.ReplicaRead = nil }()
	w.address(r, p, 0)
	r.TimeoutMicros = min(r.TimeoutMicros, uint64(max(1, patience.Microseconds())))
	inner, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l := &table.Hint{Node: n, Incarnation: n.Incarnation()}
	n.Owed.Add(1)
	response, err := n.Lanes[w.lane].Do(inner, r)
	n.Owed.Add(-1)
	known, now := &p.Hints.Replicas, time.Now()
	if err != nil {
		w.sender.metrics.near.redirected(redirectBroken)
		known.Refuses(n, now)
		if inner.Err() != nil && ctx.Err() == nil {
			return Answer{}, nil, false
		}
		_, err, again := w.unanswered(ctx, p, l, err)
		return Answer{}, err, again == nil
	}
	if e := response.Error; e != nil {
		w.refusedFollower(p, l, e, now)
		return Answer{}, nil, false
	}
	if wire.FromTimestamp(response.ReadAt) != wire.FromTimestamp(admitted.admission.At) {
		w.note(kvpb.ErrorCode_UNKNOWN_ERROR, errOtherMoment.Error(), p.ID, n.ID)
		w.sender.metrics.near.redirected(redirectUnhealthy)
		known.Refuses(n, now)
		return Answer{}, nil, false
	}
	tellMoment(response)
	w.sender.Clock.Answered(response)
	w.byReplica = true
	return Answer{Response: response, Partition: p, Node: n.ID, Term: admitted.By.Term,
		Admitted: admitted}, nil, true
}

// refusedFollower takes in why a replica refused. Whatever it is: what the leader says about it
// counts.
func (w *followerCall) refusedFollower(p *Partition, l *table.Hint, e *kvpb.Error, now time.Time) {
	near := w.sender.metrics.near
	switch {
	case e.Code == kvpb.ErrorCode_NOT_CLOSED && e.Conflict == nil:
		near.redirected(redirectNotClosed)
		p.Hints.Replicas.IsBehind(l.Node, now)
	case e.Code == kvpb.ErrorCode_UNCERTAIN: // that is about a key, and not about the replica
		near.redirected(redirectUncertain)
	case e.Code == kvpb.ErrorCode_INVALID_ARGUMENT, e.Code == kvpb.ErrorCode_TIMESTAMP_TOO_OLD,
		e.Code == kvpb.ErrorCode_TIMESTAMP_IN_FUTURE: // so are these about the request
		near.redirected(redirectUnhealthy)
	default:
		_, _, _ = w.refusedNear(p, l, e, now)
		return
	}
	w.noteAnswer(e, p.ID, l.Node.ID)
}

// tellMoment has an answer tell when it was read as a leader's does.
func tellMoment(r *kvpb.Response) {
	switch result := r.Result.(type) {
	case *kvpb.Response_Get:
		result.Get.At = r.ReadAt
	case *kvpb.Response_BatchGet:
		result.BatchGet.At = r.ReadAt
	case *kvpb.Response_Scan:
		result.Scan.At = r.ReadAt
	case *kvpb.Response_Count:
		result.Count.At = r.ReadAt
	}
}

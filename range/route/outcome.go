package route

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// unanswered decides what follows an attempt that got no answer.
func (a *attempt) unanswered(ctx context.Context, p *Partition, l *table.Hint,
	//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
	err error) (Answer, error, *backoff.Backoff) {
	s := a.sender
	// Nothing executes a write of term 0.
	executable := a.call.Write && l.Term != 0
	var broken *client.ErrStreamBroken
	if errors.Is(err, client.ErrMessageTooLarge) {
		a.note(kvpb.ErrorCode_INVALID_ARGUMENT,
			"the request is too large: "+err.Error(), p.ID, l.Node.ID)
		return Answer{}, a.ended(nil), nil
	}
	if !errors.As(err, &broken) {
		// The context ended while the request was on its way, or waited for that, or the request
		// itself is impossible.
		if errors.Is(err, client.ErrNotSent) {
			a.sent--
		} else {
			a.maybe = a.maybe || executable
		}
		if ctx.Err() != nil {
			a.noteWaiting(err, p.ID, l.Node.ID)
			err = ctx.Err()
		}
		return Answer{}, a.ended(err), nil
	}
	a.maybe = a.maybe || (executable && broken.Sent)
	if s.life.Ended() {
		return Answer{}, a.ended(ErrClosed), nil
	}
	address, _ := l.Node.AddressAndReason()
	a.note(kvpb.ErrorCode_UNKNOWN_ERROR,
		fmt.Sprintf("the connection to node %s (%s) failed: %s", l.Node.ID, address,
			wire.Reason(broken.Cause)), p.ID, l.Node.ID)
	if status.Code(broken.Cause) == codes.FailedPrecondition {
		return Answer{}, a.ended(ErrWrongCluster), nil
	}
	l.Node.Suspect(l.Incarnation, broken.Cause)
	p.Hints.Drop(l, time.Now())
	return Answer{}, nil, &connectionBackoff
}

// refused decides what follows an answer that is an error.
func (a *attempt) refused(p *Partition, l *table.Hint, looking bool,
	//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
	e *kvpb.Error) (Answer, error, *backoff.Backoff) {
	s := a.sender
	a.noteAnswer(e, p.ID, l.Node.ID)
	switch e.Code {
	case kvpb.ErrorCode_NOT_LEADER:
		s.learnLeader(p.Hints, l.Node, e)
		p.Hints.Drop(l, time.Now())
		if looking {
			return Answer{}, nil, &atOnce // the walk sets the pace
		}
		return Answer{}, nil, &routingBackoff
	case kvpb.ErrorCode_STALE_EPOCH, kvpb.ErrorCode_KEY_OUT_OF_SPAN,
		kvpb.ErrorCode_PARTITION_NOT_FOUND:
		s.learnLeader(p.Hints, l.Node, e)
		if e.Code == kvpb.ErrorCode_PARTITION_NOT_FOUND {
			p.Hints.Drop(l, time.Now())
		}
		if !s.known.LearnPartitions(e.Partitions) && a.countOf(routingBackoff) > 2 {
			s.following.Reload()
		}
		return Answer{}, nil, &routingBackoff
	case kvpb.ErrorCode_OVERLOADED:
		if e.Cause == kvpb.ErrorCause_CAUSE_TOO_LARGE {
			return Answer{}, a.ended(nil), nil // here; another node may have executed it before
		}
		return Answer{}, nil, overloadedFor(e)
	case kvpb.ErrorCode_NO_QUORUM:
		s.learnLeader(p.Hints, l.Node, e)
		p.Hints.Drop(l, time.Now())
		return Answer{}, nil, &quorumBackoff
	case kvpb.ErrorCode_UNAUTHENTICATED:
		failure, again := a.unauthenticated()
		if again != nil {
			return Answer{}, nil, again
		}
		return Answer{}, failure, nil
	case kvpb.ErrorCode_NODE_UNHEALTHY, kvpb.ErrorCode_CLOCK_SKEW,
		kvpb.ErrorCode_ACCESS_UNKNOWN:
		s.learnLeader(p.Hints, l.Node, e)
		p.Hints.Drop(l, time.Now())
		return Answer{}, nil, &unhealthyBackoff
	case kvpb.ErrorCode_REPLICA_DAMAGED:
		if a.damaged == nil {
			a.damaged = make(map[*nodes.Node]string)
		}
		a.damaged[l.Node] = e.Message
		p.Hints.Drop(l, time.Now())
		if !p.Survives(len(a.lost().damaged)) {
			return Answer{}, a.ended(nil), nil // it takes a person to mend that
		}
		return Answer{}, nil, &unhealthyBackoff
	case kvpb.ErrorCode_OUTCOME_UNKNOWN:
		a.maybe = a.maybe || a.call.Write
		s.learnLeader(p.Hints, l.Node, e)
		return Answer{}, nil, &unknownBackoff
	case kvpb.ErrorCode_DEADLINE_EXCEEDED, kvpb.ErrorCode_LOCKED:
		// it did not run, and has waited for long, or our own context is about to end
		return Answer{}, nil, &waitedBackoff
	case kvpb.ErrorCode_TIMESTAMP_TOO_OLD:
		// A session that was idle for longer than versions are kept. No attempt was taken, so the
		// request may begin anew, in the session that this answer has brought up to date.
		if a.call.Write && !a.maybe && !a.renewed {
			a.renewed = true
			a.session = s.Clock.SessionOfRequest()
			if id := a.call.Identity; id != nil {
				id.session = a.session
			}
			return Answer{}, nil, &atOnce
		}
	case kvpb.ErrorCode_WRONG_CLUSTER:
		return Answer{}, a.ended(ErrWrongCluster), nil
	case kvpb.ErrorCode_UNKNOWN_ERROR:
		// The node failed in a way that has no name, which says nothing about what it had done by then.
		a.maybe = a.maybe || a.call.Write
	}
	final := a.ended(nil)
	switch e.Code {
	case kvpb.ErrorCode_INVALID_ARGUMENT:
		// It is as invalid in every attempt: none was executed.
		final.OutcomeUnknown = false
	case kvpb.ErrorCode_DISK_FULL, kvpb.ErrorCode_QUOTA_EXCEEDED:
		if e.NotExecuted {
			final.OutcomeUnknown = false
		}
	case kvpb.ErrorCode_TRANSACTION_CONFLICT, kvpb.ErrorCode_TRANSACTION_ABORTED,
		kvpb.ErrorCode_TRANSACTION_PUSHED:
		// None of this passes: what was read stays changed, an aborted transaction aborted, a bound
		// a bound. An attempt that had been executed would have been answered with what came of it.
		final.OutcomeUnknown = false
	}
	return Answer{}, final, nil
}

// overloadedFor is how long to wait after a node has refused a request: for as long as the node
// asks for, if it says so. At a quota the node gives each caller another time, at which there is
// room: a caller waits no less and no longer.
func overloadedFor(e *kvpb.Error) *backoff.Backoff {
	after := nodes.RetryAfter(e)
	if after > 0 && e.Cause == kvpb.ErrorCause_CAUSE_QUOTA {
		return &backoff.Backoff{Name: overloadedBackoff.Name, Base: after, Cap: after}
	}
	if 2*after <= overloadedBackoff.Base {
		return &overloadedBackoff
	}
	b := overloadedBackoff
	b.Base, b.Cap = 2*after, max(2*after, b.Cap) // with the jitter, from after to twice that
	return &b
}

// learnLeader takes in the leader that an answer of node from names, if it does.
func (s *Sender) learnLeader(c *table.Hints, from *nodes.Node, e *kvpb.Error) {
	if e.Leader == nil || e.Leader.Node == 0 || e.Leader.Term == 0 {
		return
	}
	n := s.known.Node(keys.NodeID(e.Leader.Node))
	c.Learn(n, e.Leader.Term, from, time.Now())
}

// wait is the pause before the next attempt. Its error is how the call ends.
func (a *attempt) wait(ctx context.Context, b backoff.Backoff) error {
	if b.Name == "" {
		if err := ctx.Err(); err != nil {
			return a.ended(err)
		}
		return nil
	}
	s := a.sender
	if k := s.metrics.kinds[a.call.Request.CommandName()]; k != nil {
		k.retries.Inc()
	}
	if b.Name == identityBackoff.Name {
		s.metrics.retries[b.Name].Inc()
		return a.reidentify(ctx)
	}
	if a.failures == nil {
		a.failures = make(map[string]*failures)
	}
	f := a.failures[b.Name]
	if f == nil {
		f = &failures{since: time.Now()}
		a.failures[b.Name] = f
	}
	if b.Budget > 0 && time.Since(f.since) > b.Budget {
		return a.ended(nil)
	}
	delay := b.Delay(f.count, s.random())
	f.count++
	if left := time.Until(a.deadline); b.Name == waitedBackoff.Name && !a.deadline.IsZero() &&
		left-delay < a.call.Slack {
		// It is known now that it did not run. The answer to another attempt would come too late,
		// and it would not be known any more.
		if err := s.life.Pause(ctx, left); err != nil {
			return a.ended(err)
		}
		return a.ended(context.DeadlineExceeded)
	}
	s.metrics.retries[b.Name].Inc()
	if err := s.life.Pause(ctx, delay); err != nil {
		return a.ended(err)
	}
	return nil
}

func (a *attempt) countOf(b backoff.Backoff) int {
	if f := a.failures[b.Name]; f != nil {
		return f.count
	}
	return 0
}

// note remembers what went wrong last.
func (a *attempt) note(code kvpb.ErrorCode, message string, partition keys.PartitionID,
	node keys.NodeID) {
	a.last.code, a.last.message, a.last.partition, a.last.node = code, message, partition, node
	a.last.cause, a.last.conflict = kvpb.ErrorCause_CAUSE_UNSPECIFIED, nil
	a.last.timestamp, a.last.refused = hlc.Timestamp{}, hlc.Timestamp{}
}

// noteAnswer remembers an answer that is an error.
func (a *attempt) noteAnswer(e *kvpb.Error, partition keys.PartitionID, node keys.NodeID) {
	a.note(e.Code, e.Message, partition, node)
	a.last.cause, a.last.conflict = e.Cause, e.Conflict
	a.last.timestamp, a.last.refused = wire.FromTimestamp(e.Timestamp), wire.FromTimestamp(e.Refused)
}

func (a *attempt) explained() bool { return a.last.message != "" }

// noteWaiting says what a request waited for at a node when the context ended, unless a node has said
// something about it already.
func (a *attempt) noteWaiting(err error, p keys.PartitionID, node keys.NodeID) {
	code, doing := kvpb.ErrorCode_UNKNOWN_ERROR, "waiting for the answer of node %s"
	switch {
	case a.explained():
		return
	case errors.Is(err, nodes.ErrHeld):
		code = kvpb.ErrorCode_OVERLOADED
		doing = "node %s is asked for more than it can do: the request was held back, and was not sent"
	case errors.Is(err, client.ErrNotSent):
		doing = "waiting to send to node %s"
	}
	a.note(code, fmt.Sprintf(doing, node), p, node)
}

// noteLeaderless says that no replica leads, unless a node has said something about it already.
func (a *attempt) noteLeaderless(p *Partition) {
	if !a.explained() {
		a.note(kvpb.ErrorCode_UNKNOWN_ERROR,
			fmt.Sprintf("waiting for a leader of partition %s", p.ID), p.ID, 0)
	}
}

// losses are the replicas of a partition that do not serve, in words.
type losses struct {
	// damaged said so, silent do not answer, and doubtful answer that they do not know whether
	// their clock is right.
	damaged, silent, doubtful []string
}

// lost finds the losses of the last attempt's partition.
func (a *attempt) lost() (out losses) {
	if a.at == nil {
		return out
	}
	for _, n := range a.at.Voters {
		if said, ok := a.damaged[n]; ok {
			out.damaged = append(out.damaged, said)
		} else if n.Suspected() {
			address, reason := n.AddressAndReason()
			text := fmt.Sprintf("node %s (%s): %s", n.ID, address, wire.Reason(reason))
			if errors.Is(reason, nodes.ErrNoTime) {
				out.doubtful = append(out.doubtful, text)
			} else {
				out.silent = append(out.silent, text)
			}
		}
	}
	return out
}

// howMany says that some replicas do not serve.
func howMany(gone, all int) string {
	switch {
	case all == 1:
		return "its only replica does not serve"
	case gone == all:
		return fmt.Sprintf("none of its %d replicas serves", all)
	}
	return fmt.Sprintf("%d of its %d replicas do not serve", gone, all)
}

// saidByLeader says that a code comes from the leader of a partition that has its quorum: nodes
// that cannot be reached have no part in it.
func saidByLeader(code kvpb.ErrorCode) bool {
	switch code {
	case kvpb.ErrorCode_OVERLOADED, kvpb.ErrorCode_LOCKED, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		kvpb.ErrorCode_TRANSACTION_ABORTED, kvpb.ErrorCode_TRANSACTION_PUSHED:
		return true
	}
	return false
}

// ended makes the error with which the call ends; cause is nil if the last answer is the reason.
func (a *attempt) ended(cause error) *Error {
	e := &Error{
		Code:           a.last.code,
		Why:            a.last.cause,
		Message:        a.last.message,
		Keyspace:       a.call.Keyspace,
		Partition:      a.last.partition,
		Node:           a.last.node,
		Attempts:       a.sent,
		Conflict:       a.last.conflict,
		Timestamp:      a.last.timestamp,
		Refused:        a.last.refused,
		OutcomeUnknown: a.maybe,
		Cause:          cause,
	}
	timeIsUp := errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, context.Canceled)
	if !timeIsUp && e.Code != kvpb.ErrorCode_REPLICA_DAMAGED {
		return e
	}
	lost := a.lost()
	e.Damaged = len(lost.damaged) > 0
	gone := len(lost.damaged) + len(lost.silent)
	all := gone + len(lost.doubtful)
	switch {
	case all == 0:
		return e
	case a.at.Survives(all):
		if len(lost.silent) > 0 && !saidByLeader(e.Code) {
			e.Message += "; cannot reach " + strings.Join(lost.silent, ", ")
		}
	case a.at.Survives(gone):
		// Enough of them answer. That they do not serve is the fault of a clock, whatever was said
		// last.
		e.Code, e.Why, e.Partition, e.Node = kvpb.ErrorCode_CLOCK_SKEW,
			kvpb.ErrorCause_CAUSE_CLOCKS, a.at.ID, 0
		e.Message = fmt.Sprintf("partition %s is not served because of clocks: %s", a.at.ID,
			howMany(all, len(a.at.Voters)))
		if len(lost.silent) > 0 {
			e.Message += "; no answer from " + strings.Join(lost.silent, ", ")
		}
	default:
		// Whatever was said last, this is why.
		e.Code, e.Why, e.Partition, e.Node = kvpb.ErrorCode_NO_QUORUM,
			kvpb.ErrorCause_CAUSE_UNSPECIFIED, a.at.ID, 0
		e.Message = fmt.Sprintf("partition %s has no quorum: %s", a.at.ID,
			howMany(all, len(a.at.Voters)))
		if len(lost.silent) > 0 {
			e.Message += "; no answer from " + strings.Join(lost.silent, ", ")
		}
	}
	if len(lost.doubtful) > 0 {
		e.Message += "; " + strings.Join(lost.doubtful, ", ")
	}
	if len(lost.damaged) > 0 {
		e.Message += "; " + strings.Join(lost.damaged, "; ")
	}
	return e
}

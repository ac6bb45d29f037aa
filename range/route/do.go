package route

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/follow"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// By is how a Call names its partition.
type By uint8

const (
	// ByKey: the partition that holds Key.
	ByKey By = iota
	// ByHash: of the partitions of hash number Hash, the one that holds Key.
	ByHash
	// Before: of the partitions of hash number Hash, 0 in a range keyspace, the one that holds the
	// keys just below Key.
	Before
)

// Call is one request and how it is routed. The partition is looked up anew for every attempt.
type Call struct {
	Keyspace keys.KeyspaceID
	By       By
	Key      []byte
	Hash     uint32
	// Write says that the command changes something, so that its outcome can be unknown.
	Write bool
	// Request carries the command; the sender fills in the rest. It, and what it refers to, is the
	// sender's until Do returns, and the caller's again after that.
	Request *kvpb.Request
	// Prepare is called before each attempt if set, to make the command fit this partition and
	// leader. An error ends the call with it as the cause.
	Prepare Preparer

	// Slack is how long before the caller's deadline the node is to give up waiting, so that its
	// answer, which says what it has waited for, still arrives. It is at most a tenth of the time
	// there is.
	Slack time.Duration

	// Identity, if set, makes a write one that can be sent again by another call, with the same
	// Identity and the same command. One after the other, not at the same time.
	Identity *Identity
}

// Identity is by which nodes know the attempts of a write. The first call that has it fills it in.
// A later one learns what became of the write, which takes effect now if it has not; failing that
// its outcome is unknown. Where the write cannot be sent again, Executed asks what became of it.
// The zero Identity is new.
type Identity struct {
	sequence uint64
	session  *kvpb.Timestamp
}

// used says that a call with the identity was made before.
func (i *Identity) used() bool { return i != nil && i.sequence != 0 }

// notSent is the error of a call whose context has ended before its first attempt. maybe: an earlier
// call with the same identity may have been executed.
func notSent(err error, maybe bool) *Error {
	if maybe {
		return &Error{Cause: err, OutcomeUnknown: true, Message: "the request was not sent again"}
	}
	return &Error{Cause: err, Message: "the request was not sent"}
}

// Preparer makes a command fit the partition and the leader of an attempt.
type Preparer interface {
	Prepare(p *Partition, l Leader) error
}

// PreparerFunc is a function that is a Preparer.
type PreparerFunc func(p *Partition, l Leader) error

// Prepare implements Preparer.
func (f PreparerFunc) Prepare(p *Partition, l Leader) error { return f(p, l) }

// Answer is a response and where it came from.
type Answer struct {
	*kvpb.Response
	Partition *Partition
	// Node and Term are by which the request was routed; Term is 0 when it went out looking for the
	// leader.
	Node keys.NodeID
	Term uint64
	// Shared: it is the answer to several BatchGets together, of which Rows are those of this one:
	// of its keys that have a value, in their order. They alias the message that brought them.
	Shared bool
	Rows   []wire.Row
	// Admitted is by which a replica has answered that need not lead (DoFollower).
	Admitted *Admitted
}

// errNoPartition means that the table has a hole.
var errNoPartition = errors.New("no partition in the table holds it")

// Do brings the request to its partition's leader and returns the response, which has no error in
// it, or an *Error.
func (s *Sender) Do(ctx context.Context, call *Call) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, notSent(err, call.Write && call.Identity.used())
	}
	ctx, o := s.observe(ctx, call.Request, 1)
	a := s.attempt(ctx, call)
	answer, err := a.run(ctx)
	o.end(err)
	return answer, err
}

// attempt begins a call.
func (s *Sender) attempt(ctx context.Context, call *Call) attempt {
	a := attempt{sender: s, call: call}
	if id := call.Identity; id.used() {
		a.sequence, a.session, a.maybe = id.sequence, id.session, call.Write
	} else {
		a.sequence, a.session = s.sequence.Add(1), s.Clock.SessionOfRequest()
		if id != nil {
			id.sequence, id.session = a.sequence, a.session
		}
	}
	a.lane = int(a.sequence % uint64(s.nodes.Lanes()))
	a.deadline, _ = ctx.Deadline()
	return a
}

// run makes attempts until one is the last.
func (a *attempt) run(ctx context.Context) (Answer, error) {
	for {
		answer, err, again := a.once(ctx)
		if again == nil {
			return answer, err
		}
		if err := a.wait(ctx, *again); err != nil {
			return Answer{}, err
		}
	}
}

// attempt is the state of one call over its attempts.
type attempt struct {
	sender   *Sender
	call     *Call
	sequence uint64
	session  *kvpb.Timestamp
	lane     int
	// deadline is the caller's; zero: there is none.
	deadline time.Time

	// maybe: an earlier attempt of the write may have been executed.
	maybe bool
	// token is the number of the token that was the latest as the last attempt was made;
	// reidentified: a new one was got because of the call.
	token        uint64
	reidentified bool
	// renewed: the session was too old, and was replaced.
	renewed bool
	sent    int
	// last is what the most recent failure was, in words and as a code, and where.
	last struct {
		code      kvpb.ErrorCode
		cause     kvpb.ErrorCause
		message   string
		partition keys.PartitionID
		node      keys.NodeID
		conflict  *kvpb.Conflict

		timestamp, refused hlc.Timestamp
	}
	// at is the partition of the last attempt; nil before the first.
	at *Partition
	// damaged are the nodes that said that their replica of it is damaged, and what they said.
	damaged map[*nodes.Node]string
	// failures by Backoff.Name; made at the first.
	failures map[string]*failures
}

// failures of one class in one call.
type failures struct {
	count int
	since time.Time
}

// atOnce is for another attempt without a wait, where something else already sets the pace.
var atOnce backoff.Backoff

// once makes one attempt. If another one is to follow, again is how long to wait before it.
//
//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
func (a *attempt) once(ctx context.Context) (answer Answer, err error, again *backoff.Backoff) {
	p, err := a.lookUp()
	if err != nil {
		return a.noPartition(ctx, err)
	}
	a.at = p
	l := p.Hints.Current()
	looking := false
	if !l.Usable() {
		if l, looking, err = a.search(ctx, p); err != nil {
			if errors.Is(err, errMoved) {
				return Answer{}, nil, &atOnce
			}
			return Answer{}, a.ended(err), nil
		}
		if looking {
			defer func() { <-p.Hints.Token }()
		}
	}
	r, err := a.request(p, l)
	if err != nil {
		return Answer{}, err, nil
	}
	response, err := l.Node.Lanes[a.lane].Do(ctx, r)
	return a.arrived(ctx, p, l, looking, response, err)
}

// request makes the request of an attempt that goes to a leader. Its error is how the call ends.
func (a *attempt) request(p *Partition, l *table.Hint) (*kvpb.Request, error) {
	call := a.call
	r := call.Request
	if l.Term == 0 && !call.Write {
		// One that waits at the leader would keep all others from looking for it.
		r = probe(p)
	} else if call.Prepare != nil {
		if err := call.Prepare.Prepare(p, Leader{Node: l.Node.ID, Term: l.Term}); err != nil {
			return nil, a.ended(err)
		}
	}
	a.address(r, p, l.Term)
	return r, nil
}

// address makes a request one attempt of the call, to a replica of the partition.
func (a *attempt) address(r *kvpb.Request, p *Partition, term uint64) {
	r.Partition, r.Generation, r.Term = uint64(p.ID), p.Generation, term
	r.Sequence, r.Session = a.sequence, a.session
	a.token = a.sender.identity.Shown()
	left := nodes.Patience
	if !a.deadline.IsZero() {
		left = time.Until(a.deadline)
		left -= min(a.call.Slack, left/10)
		left = min(left, nodes.Patience)
	}
	r.TimeoutMicros = uint64(max(1, left.Microseconds()))
	a.sent++
}

// arrived takes in what came of an attempt. If another one is to follow, again is how long to wait
// before it.
func (a *attempt) arrived(ctx context.Context, p *Partition, l *table.Hint, looking bool,
	//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
	response *kvpb.Response, err error) (Answer, error, *backoff.Backoff) {
	if err != nil {
		return a.unanswered(ctx, p, l, err)
	}
	if response.Error == nil {
		if looking {
			p.Hints.Infer(l.Node, time.Now())
		}
		a.sender.Clock.Answered(response)
		return Answer{Response: response, Partition: p, Node: l.Node.ID, Term: l.Term}, nil, nil
	}
	return a.refused(p, l, looking, response.Error)
}

func (a *attempt) lookUp() (*Partition, error) {
	k := a.sender.known.Table().KeyspaceByID(a.call.Keyspace)
	if k == nil {
		return nil, ErrNoKeyspace
	}
	var p *Partition
	switch a.call.By {
	case ByHash:
		p = k.ByHash(a.call.Hash, a.call.Key)
	case Before:
		p = k.Before(a.call.Hash, a.call.Key)
	default:
		p = k.ByKey(a.call.Key)
	}
	if p == nil {
		return nil, errNoPartition
	}
	return p, nil
}

// noPartition waits for the table to change when it has a hole, and gives up when the keyspace is
// gone.
//
//lint:ignore ST1008 an answer and its error stand together; then comes the next attempt
func (a *attempt) noPartition(ctx context.Context, err error) (Answer, error, *backoff.Backoff) {
	s := a.sender
	if errors.Is(err, ErrNoKeyspace) {
		return Answer{}, a.ended(err), nil
	}
	a.note(kvpb.ErrorCode_UNKNOWN_ERROR,
		"waiting for the partition table to show the partition of "+keys.Pretty(a.call.Key), 0, 0)
	known := s.known.Table()
	changed := known.Changed()
	if _, err := a.lookUp(); err == nil {
		return Answer{}, nil, &atOnce
	}
	fill := follow.ReloadAfter
	if k := known.KeyspaceByID(a.call.Keyspace); k != nil {
		s.following.Subscribe(k)
		fill = follow.HolePatience(k)
	}
	s.metrics.retries[routingBackoff.Name].Inc()
	timer := time.NewTimer(fill)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
		s.following.Reload()
	case <-ctx.Done():
		return Answer{}, a.ended(ctx.Err()), nil
	case <-s.life.Done():
		return Answer{}, a.ended(ErrClosed), nil
	}
	return Answer{}, nil, &atOnce
}

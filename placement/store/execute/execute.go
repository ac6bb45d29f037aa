package execute

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Commands that come in at any member.
//
// A member that does not lead forwards the command to the leader, with the term of the leader that
// it knows. The command is proposed in that term or not at all. Both members apply the log, so the
// outcome is found without any record of executed commands:
//
//    - The leader answers when it has applied the command. If the member has applied it sooner,
//      that answers the caller: reads have all that is committed, at every member (package
//      reading).
//    - If the answer does not come, the member asks again, in the same term. The leader remembers
//      which commands it has proposed in its term, and proposes none twice (forward.go).
//    - When the member has applied an entry of a later term, the command was applied here before,
//      or never will be anywhere: entries of a term come before those of a later one. So it can be
//      proposed again in that term, and takes effect once.
//
// A snapshot skips entries. Then the outcome of pending commands is unknown.

// errNever is the error of a command that was not applied, and never will be.
var errNever = errors.New("the command was not applied, and never will be")

// againAfter is the time after which a member asks again a leader that did not answer.
const againAfter = 50 * time.Millisecond

// AskTimeout bounds one question to the leader.
const AskTimeout = time.Second

// LookAgain is the pause before a member that found no leader looks again.
const LookAgain = 20 * time.Millisecond

// Execute is Do on any member, and applies the command at most once. It waits for a leader, and
// continues with the next leader after a change, until ctx ends. Then NotLeaderError or
// ErrOverloaded means that nothing was proposed, and ErrOutcomeUnknown that the command may have
// taken effect, or still may. The command must have no session.
func (x *Executor) Execute(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	if err := command.Validate(c); err != nil {
		return nil, err
	}
	if c.Session != 0 {
		return nil, fmt.Errorf("%w: a session is not needed here", command.ErrInvalid)
	}
	for {
		l, _ := x.Leadership()
		result, err := x.executeAt(ctx, l, c)
		if notLeader := (*command.NotLeaderError)(nil); !errors.Is(err, errNever) &&
			!errors.As(err, &notLeader) {
			return result, err
		}
		if waitErr := x.AwaitLeadership(ctx, LookAgain); waitErr != nil {
			return nil, fmt.Errorf("%w: %w", &command.NotLeaderError{Leader: l.Leader, Term: l.Term},
				waitErr)
		}
	}
}

// executeAt tries to execute a command under one leader. NotLeaderError and errNever mean that the
// command was not applied, and never will be.
func (x *Executor) executeAt(
	ctx context.Context, l Leadership, c *storepb.Command,
) (*storepb.Result, error) {
	switch {
	case l.IsLeader:
		c, err := x.machine.Prepare(ctx, c)
		if err != nil {
			return nil, err
		}
		return x.attempt(ctx, x.own(c), &pending{term: l.Term, survives: true})
	case l.Leader == 0 || x.config.Peers == nil:
		return nil, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	return x.handOver(ctx, l, c)
}

// handOver lets the leader execute a command.
func (x *Executor) handOver(
	ctx context.Context, l Leadership, c *storepb.Command,
) (*storepb.Result, error) {
	size := proto.Size(c) + commandOverhead
	if size > command.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", command.ErrTooLarge, size,
			command.MaxBytes)
	}
	if err := x.enter(ctx, size); err != nil {
		return nil, err
	}
	p := newPending(size)
	p.term, p.survives = l.Term, true
	own := &storepb.Command{Origin: x.config.Origin, Auth: c.Auth, Op: c.Op}
	id, err := x.expect(p, own)
	if err != nil {
		x.budget.Leave(size)
		return nil, err
	}
	data, err := command.Encode(own)
	if err != nil {
		x.unregister(id)
		return nil, err
	}
	result, err := x.follow(ctx, l, p, data)
	x.unregister(id)
	if err != nil {
		return nil, err
	}
	// Wait until this member has the effect, so that the caller's next read finds it. The command
	// is done even if the caller's context ends first.
	_ = x.machine.Reach(ctx, result.Entry)
	return result, command.ErrorOf(result)
}

// commandOverhead is the number of bytes that ID and bookkeeping fields add to a command.
const commandOverhead = 64

// expect gives an ID to a command that another member is to propose, and registers the command.
//
// INVARIANT: a command counts as not settled from the moment it has its number.
func (x *Executor) expect(p *pending, c *storepb.Command) (ID, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.mu.closed:
		return ID{}, command.ErrClosed
	case x.mu.appliedTerm > p.term:
		return ID{}, &command.NotLeaderError{Leader: x.mu.leadership.Leader,
			Term: x.mu.leadership.Term}
	}
	c.Request = x.requests.Add(1)
	id := ID{c.Origin, c.Request}
	if id.Request%settledEvery == 0 {
		c.Acknowledged = x.settledLocked(id.Request)
	}
	x.mu.pending[id] = p
	return id, nil
}

// With every settledEvery-th command, a process tells the leader up to which of its commands it
// knows the outcome.
const settledEvery = 64

// settledLocked returns the number up to which this process knows the outcome of all its commands.
func (x *Executor) settledLocked(newest uint64) uint64 {
	oldest := newest
	for id := range x.mu.pending {
		if id.Origin == x.config.Origin {
			oldest = min(oldest, id.Request)
		}
	}
	return oldest - 1
}

// reply is another member's answer to Peers.Execute.
type reply struct {
	result []byte
	err    error
}

// follow hands a command to the leader, again if necessary, until the outcome is known.
func (x *Executor) follow(
	ctx context.Context, l Leadership, p *pending, data []byte,
) (*storepb.Result, error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	replies := make(chan reply, 1)
	ask := func() {
		result, err := x.config.Peers.Execute(asking, l.Leader, l.Term, data)
		replies <- reply{result, err}
	}
	timer := time.NewTimer(againAfter)
	timer.Stop()
	defer timer.Stop()
	if !x.start(ask) {
		return nil, command.ErrClosed
	}
	for asked := 1; ; {
		select {
		case r := <-replies:
			result, applied, err := heard(r, asked)
			if result != nil || err != nil {
				return result, err
			}
			if !applied { // else the log shows it here too
				timer.Reset(againAfter)
			}
		case <-timer.C:
			switch now, _ := x.Leadership(); {
			case now.Term != l.Term: // the log shows the outcome here too
			case now.Leader == l.Leader:
				asked++
				x.start(ask) // if the store is closed, the outcome says so
			default:
				// This member has lost contact with the leader, which may come back in the same term.
				timer.Reset(againAfter)
			}
		case o := <-p.outcome:
			return o.result, o.err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", command.ErrOutcomeUnknown, ctx.Err())
		}
	}
}

// heard interprets an answer of the leader. With neither result nor error the outcome is still
// open: the command may be in flight, or was applied with a result that this member does not know.
func heard(r reply, asked int) (result *storepb.Result, applied bool, err error) {
	if r.err != nil {
		if notLeader := (*command.NotLeaderError)(nil); errors.As(r.err, &notLeader) && asked == 1 {
			return nil, false, notLeader
		}
		// The command may have been proposed. If that member no longer leads, the log will show the
		// outcome.
		return nil, false, nil
	}
	result = &storepb.Result{}
	if err := proto.Unmarshal(r.result, result); err != nil {
		return nil, false, fmt.Errorf("%w: the leader's answer is malformed: %w",
			command.ErrOutcomeUnknown, err)
	}
	switch result.Code {
	case storepb.Code_OVERLOADED:
		return nil, false, fmt.Errorf("%w: %s", command.ErrOverloaded, result.Message)
	case storepb.Code_PROPOSED_BEFORE:
		return nil, true, nil
	}
	return result, true, nil
}

// supersededLocked takes the pending commands of terms before the newest term applied here:
// commands of these terms that are not applied by now never will be.
func (x *Executor) supersededLocked() (all []Known) {
	for id, p := range x.mu.pending {
		if !p.survives || p.term >= x.mu.appliedTerm {
			continue
		}
		delete(x.mu.pending, id)
		all = append(all, Known{p, outcome{err: errNever}})
	}
	return all
}

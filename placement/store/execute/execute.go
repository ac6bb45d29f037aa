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
// A member that does not lead forwards the command to the leader, with the term of the leadership
// that it believes in. The command is proposed in that term or not at all. Both members apply the
// log, so the outcome is found without any record of executed commands:
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
// A snapshot skips entries. The outcome of commands that were under way is then not known.

// errNever: the command was not applied, and never will be.
var errNever = errors.New("the command was not applied, and never will be")

// againAfter is the time after which a member asks a leader again that did not answer.
const againAfter = 50 * time.Millisecond

// AskTimeout bounds one question to the leader.
const AskTimeout = time.Second

// LookAgain is when a member looks again for a leader after it has found none.
const LookAgain = 20 * time.Millisecond

// Execute is Do on any member, and applies the command at most once. It waits for a leader, and
// continues with the next one after a change, until ctx ends: then NotLeaderError or ErrOverloaded
// means that nothing was proposed, ErrOutcomeUnknown that the command may have taken effect or may
// yet. The command must have no session.
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

// executeAt tries to execute a command under a leader. NotLeaderError and errNever mean that it is
// not, and never will be, applied.
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

// handOver has the leader execute a command.
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
	// The caller finds the effect on this member, whatever it reads. If the caller does not want to
	// wait for that, the command is done nevertheless.
	_ = x.machine.Reach(ctx, result.Entry)
	return result, command.ErrorOf(result)
}

// commandOverhead is by how much the names of a command make it longer.
const commandOverhead = 64

// expect names a command that another member is to propose, and registers it.
//
// INVARIANT: from when it has its number on it counts as not settled.
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

// With every settledEvery commands, a process tells the leader up to which of its commands it knows
// the outcome.
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

// follow hands a command over, again if need be, until its outcome is known.
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
			if now, _ := x.Leadership(); now.Term == l.Term && now.Leader == l.Leader {
				asked++
				x.start(ask) // if the store is closed, the outcome says so
			}
		case o := <-p.outcome:
			return o.result, o.err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", command.ErrOutcomeUnknown, ctx.Err())
		}
	}
}

// heard reads an answer of the leader. Without a result and an error the outcome is still open: the
// command may be under way, or it was applied and this member does not know its result.
func heard(r reply, asked int) (result *storepb.Result, applied bool, err error) {
	if r.err != nil {
		if notLeader := (*command.NotLeaderError)(nil); errors.As(r.err, &notLeader) && asked == 1 {
			return nil, false, notLeader
		}
		// It may have been proposed. If that member leads no more, the log will show.
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

// supersededLocked takes the commands that were proposed in terms before the newest that is applied
// here: those that are not applied by now never will be.
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

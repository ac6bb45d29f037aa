package execute

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// ID names a command: Origin is the process that made it, Request the number that it has there.
type ID struct{ Origin, Request uint64 }

// pending is a command that was proposed and whose outcome this member does not know yet. Its
// caller may have given up.
type pending struct {
	// term is that in which it was proposed, here or, if elsewhere, at another member.
	term uint64
	// size is what it takes of the budget, and reserved what it has reserved of the quota.
	size     int
	reserved uint64
	// format is that of the command, if it is higher than what this version would give it.
	format byte
	// survives is set if the caller waits beyond the end of the leadership, until the log shows the
	// outcome (execute.go).
	survives bool
	// group is the entry that it shares with others; nil if it is alone in its own, or is not
	// proposed yet.
	group *entryGroup
	// outcome has capacity 1: the outcome is sent once, whether the caller still waits or not.
	outcome chan outcome
	// over is closed when the outcome is known, for calls that wait for this command beside its
	// caller (proposedBefore). applied, which is set before, says whether the command was applied.
	over    chan struct{}
	applied bool
}

// outcome is what became of a command: a result, or why there is none.
type outcome struct {
	result *storepb.Result
	err    error
}

// Known is a command whose outcome is known, and whose caller is to be told.
type Known struct {
	*pending
	outcome outcome
}

func newPending(size int) *pending {
	return &pending{size: size, outcome: make(chan outcome, 1), over: make(chan struct{})}
}

// Settle tells callers what became of their commands.
func (x *Executor) Settle(all []Known) {
	for _, k := range all {
		x.budget.Leave(k.size)
		x.machine.Release(k.reserved)
		k.applied = k.outcome.err == nil
		k.pending.outcome <- k.outcome
		close(k.over)
	}
	x.groupsSettled(all)
}

// lose tells the callers of commands that it is not known what becomes of them.
func (x *Executor) lose(lost []*pending) {
	for _, p := range lost {
		x.Settle([]Known{{p, outcome{err: fmt.Errorf("%w: this member stopped leading %s at term %d",
			command.ErrOutcomeUnknown, x.config.Name, p.term)}}})
	}
}

func (x *Executor) takePendingLocked(which func(*pending) bool) []*pending {
	var taken []*pending
	for request, p := range x.mu.pending {
		if which(p) {
			taken = append(taken, p)
			delete(x.mu.pending, request)
		}
	}
	return taken
}

// Awaits says whether a caller waits for what a command comes to.
func (x *Executor) Awaits(id ID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.pending[id] != nil
}

// Do proposes a command and waits until this member, which has to be the leader, has applied it.
// NotLeaderError, ErrOverloaded and ErrTooLarge mean that nothing was proposed. ErrOutcomeUnknown
// means that it may or may not have taken effect, now or later: with a session the same command can
// be done again, on whichever member leads then. Other errors are the command's own outcome.
func (x *Executor) Do(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	c, err := x.machine.Prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	return x.DoOwn(ctx, c)
}

// DoOwn is Do for what the store itself has decided: nothing is checked.
func (x *Executor) DoOwn(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	return x.attempt(ctx, x.own(c), &pending{})
}

// own returns a copy of a command with a new name of this process. Both share Op.
func (x *Executor) own(c *storepb.Command) *storepb.Command {
	return &storepb.Command{Origin: x.config.Origin, Request: x.requests.Add(1), Session: c.Session,
		Sequence: c.Sequence, Acknowledged: c.Acknowledged, Auth: c.Auth, Op: c.Op}
}

// attempt proposes a command once and waits for its outcome. like says how the command waits; if
// its term is not 0, the command may be proposed only in that term.
func (x *Executor) attempt(
	ctx context.Context, c *storepb.Command, like *pending,
) (*storepb.Result, error) {
	started := time.Now()
	data, err := command.Encode(c)
	if err != nil {
		return nil, err
	}
	data[0] = max(data[0], like.format)
	if len(data) > command.MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", command.ErrTooLarge, len(data),
			command.MaxBytes)
	}
	// The quota comes before the budget. So a command that waits counts in the quota. A command
	// that the quota refuses takes no part of the budget, of which the alarm that it raises needs
	// some.
	reserved, err := x.machine.Reserve(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := x.enter(ctx, len(data)); err != nil {
		x.machine.Release(reserved)
		return nil, err
	}
	p := newPending(len(data))
	p.term, p.survives, p.reserved = like.term, like.survives, reserved
	id := ID{c.Origin, c.Request}
	handle, err := x.register(id, p)
	if err != nil {
		x.budget.Leave(p.size)
		x.machine.Release(p.reserved)
		return nil, err
	}
	if x.config.GroupCommands && groups(c) {
		x.join(id, p, data)
	} else if err := x.propose(handle, p.term, c, data); err != nil {
		x.unregister(id)
		return nil, fmt.Errorf("propose to %s: %w", x.config.Name, err)
	}
	select {
	case o := <-p.outcome:
		if o.err != nil {
			return nil, o.err
		}
		x.config.Latency.Observe(time.Since(started).Seconds())
		return o.result, command.ErrorOf(o.result)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", command.ErrOutcomeUnknown, ctx.Err())
	}
}

// register must come before the proposal: SetLeadership and EntriesApplied end what is registered.
func (x *Executor) register(id ID, p *pending) (Group, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.mu.leadership
	switch {
	case x.mu.closed:
		return nil, command.ErrClosed
	case x.mu.group == nil || !l.IsLeader || p.term != 0 && p.term != l.Term,
		// The quota has admitted it under an earlier leadership.
		p.reserved > 0 && !x.leadershipLocked().Serving:
		return nil, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	p.term = l.Term
	x.mu.pending[id] = p
	x.mu.forwarded.registered(id, p)
	return x.mu.group, nil
}

// unregister drops a command that was not proposed, or whose outcome the caller knows already.
func (x *Executor) unregister(id ID) {
	x.mu.Lock()
	p := x.mu.pending[id]
	delete(x.mu.pending, id)
	x.mu.Unlock()
	if p != nil {
		x.budget.Leave(p.size)
		x.machine.Release(p.reserved)
		close(p.over)
	}
}

// propose hands a command to the group, as what it is.
func (x *Executor) propose(handle Group, term uint64, c *storepb.Command, data []byte) error {
	if op, ok := c.Op.(*storepb.Command_ChangeMembers); ok {
		next := op.ChangeMembers.Next
		if change, err := command.StepOfMembers(x.machine.Members(), next); err == nil && change {
			return handle.ProposeChange(term, data, command.ConfigurationOf(next))
		}
	}
	return handle.Propose(term, data)
}

// ProposeAside proposes what the leader has decided by itself, in the term of the decision, and
// does not wait for it. If it is lost with the leadership, the next leader decides anew. false:
// this member no longer leads at that term.
func (x *Executor) ProposeAside(term uint64, commands ...*storepb.Command) (bool, error) {
	x.mu.Lock()
	handle, leads := x.mu.group, x.mu.leadership.IsLeader && x.mu.leadership.Term == term
	x.mu.Unlock()
	if handle == nil || !leads {
		return false, nil
	}
	var entries [][][]byte
	for i, c := range commands {
		data, err := command.Encode(c)
		if err != nil {
			return false, err
		}
		if i == 0 || !x.config.GroupCommands {
			entries = append(entries, nil)
		}
		last := &entries[len(entries)-1]
		*last = append(*last, data)
	}
	for _, entry := range entries {
		if err := handle.Propose(term, command.EncodeEntry(entry)); err != nil {
			return false, err
		}
	}
	return true, nil
}

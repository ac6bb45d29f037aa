package execute

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Do proposes a command and waits until this member, which has to be the leader, has applied it.
// NotLeaderError, ErrOverloaded and ErrTooLarge mean that nothing was proposed. ErrOutcomeUnknown
// means that it may or may not have taken effect, now or later: a command with a session can be
// repeated, on whichever member leads then. Other errors are the command's own outcome.
func (x *Executor) Do(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	c, err := x.machine.Prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	return x.DoOwn(ctx, c)
}

// DoOwn is Do, without checks, for commands that the store itself has decided.
func (x *Executor) DoOwn(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	return x.attempt(ctx, x.own(c), &pending{})
}

// own returns a copy of a command with a new ID of this process. Both share Op.
func (x *Executor) own(c *storepb.Command) *storepb.Command {
	return &storepb.Command{Origin: x.config.Origin, Request: x.requests.Add(1), Session: c.Session,
		Sequence: c.Sequence, Acknowledged: c.Acknowledged, Auth: c.Auth, Op: c.Op}
}

// attempt proposes a command once and waits for its outcome. like sets how the command waits; if
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
	// The quota comes before the budget. So waiting commands count in the quota, and a refused
	// command takes no share of the budget, which the alarm that it raises may need.
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

// register must precede the proposal: SetLeadership and EntriesApplied end registered commands.
func (x *Executor) register(id ID, p *pending) (Group, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.mu.leadership
	switch {
	case x.mu.closed:
		return nil, command.ErrClosed
	case x.mu.group == nil || !l.IsLeader || p.term != 0 && p.term != l.Term,
		// The quota admitted the command under an earlier leadership.
		p.reserved > 0 && !x.leadershipLocked().Serving:
		return nil, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	p.term = l.Term
	x.mu.pending[id] = p
	x.mu.forwarded.registered(id, p)
	return x.mu.group, nil
}

// unregister removes a command that was not proposed, or whose outcome the caller knows already.
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

// propose passes a command to the group: as data, or as a change of the configuration.
func (x *Executor) propose(handle Group, term uint64, c *storepb.Command, data []byte) error {
	if op, ok := c.Op.(*storepb.Command_ChangeMembers); ok {
		next := op.ChangeMembers.Next
		if change, err := command.StepOfMembers(x.machine.Members(), next); err == nil && change {
			return handle.ProposeChange(term, data, command.ConfigurationOf(next))
		}
	}
	return handle.Propose(term, data)
}

// ProposeAside proposes commands that the leader has decided by itself, in the term of the
// decision, and does not wait for them. If they are lost with the leadership, the next leader
// decides anew. It returns false if this member no longer leads at that term.
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

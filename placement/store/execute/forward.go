package execute

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// ServeExecute is the leader's side of Peers.Execute: it proposes another member's command, unless
// it has done so before, and returns the result when it has applied the command. term is the term
// of the leader that the other member knows. NotLeaderError means that nothing was done.
func (x *Executor) ServeExecute(ctx context.Context, term uint64, data []byte) ([]byte, error) {
	c, format, err := command.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%w: a member's command: %w", command.ErrInvalid, err)
	}
	if c.Origin == 0 || c.Origin == x.config.Origin || c.Request == 0 || c.Session != 0 ||
		c.Sequence != 0 {
		return nil, fmt.Errorf("%w: a member's command has no name, or a session", command.ErrInvalid)
	}
	id, settled := ID{c.Origin, c.Request}, c.Acknowledged
	c.Acknowledged = 0
	// INVARIANT: a command is checked (Prepare) only if it was not proposed before. A command that
	// took effect could be refused because of its own effect.
	first, before, err := x.admit(id, settled, term)
	switch {
	case err != nil:
		return nil, err
	case !first:
		return proposedBefore(ctx, before)
	}
	// The other member admits its clients in turn; here the member counts as one client.
	ctx = WithClient(ctx, fmt.Sprintf("member %x", c.Origin))
	var result *storepb.Result
	if c, err = x.machine.Prepare(ctx, c); err == nil {
		result, err = x.attempt(ctx, c, &pending{term: term, format: format})
	}
	switch {
	case result != nil:
		result.Entry = x.machine.AppliedIndex()
		return proto.Marshal(result)
	case errors.Is(err, command.ErrOutcomeUnknown):
		return nil, err
	}
	x.mu.Lock()
	x.mu.forwarded.notProposed(id)
	x.mu.Unlock()
	return command.Refusal(err)
}

// admit returns whether a command is to be proposed. If it was proposed before, admit returns its
// pending, if known.
func (x *Executor) admit(id ID, settled, term uint64) (first bool, before *pending, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.leadershipLocked(); !l.IsLeader || l.Term != term || x.mu.forwarded.term != term {
		return false, nil, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	first, before = x.mu.forwarded.propose(id, settled)
	return first, before, nil
}

// proposedBefore waits until a command that was proposed before, in this term, has been applied,
// and returns its result.
func proposedBefore(ctx context.Context, p *pending) ([]byte, error) {
	if p == nil {
		return nil, fmt.Errorf("%w: it is being proposed, or was given up", command.ErrOutcomeUnknown)
	}
	select {
	case <-p.over:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !p.applied {
		return nil, fmt.Errorf("%w: this member stopped leading", command.ErrOutcomeUnknown)
	}
	return proto.Marshal(&storepb.Result{Code: storepb.Code_PROPOSED_BEFORE})
}

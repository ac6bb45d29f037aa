package execute

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// maxOrigins bounds of how many processes a leader remembers the commands. Only members hand over
// commands, so there are more only if they start again that often in one term.
const maxOrigins = 1024

// forwarded has the commands of other members that this leader has proposed in its term. It
// prevents a second proposal when a member asks again. Executor.mu guards it.
type forwarded struct {
	term    uint64
	origins map[uint64]*originCommands
	uses    uint64
}

// originCommands are those of one process.
type originCommands struct {
	// settled is the number up to which the process knows the outcomes, or no longer wants to know
	// them; it will not ask for these again.
	settled uint64
	// proposed has nil for a command that is about to be proposed.
	proposed map[uint64]*pending
	// used is when the process was last heard of, as a value of forwarded.uses.
	used uint64
}

func (f *forwarded) begin(term uint64) {
	f.term, f.origins = term, map[uint64]*originCommands{}
}

// propose notes that a command is about to be proposed; false if it was proposed before, or is
// late.
func (f *forwarded) propose(id ID, settled uint64) (first bool, before *pending) {
	o := f.origins[id.Origin]
	if o == nil {
		f.makeRoom()
		o = &originCommands{proposed: map[uint64]*pending{}}
		f.origins[id.Origin] = o
	}
	f.uses++
	o.used = f.uses
	if settled > o.settled {
		o.settled = settled
		for request := range o.proposed {
			if request <= settled {
				delete(o.proposed, request)
			}
		}
	}
	before, again := o.proposed[id.Request]
	if id.Request <= o.settled || again {
		return false, before
	}
	o.proposed[id.Request] = nil
	return true, nil
}

// registered notes that a command waits for its outcome.
func (f *forwarded) registered(id ID, p *pending) {
	if o := f.origins[id.Origin]; o != nil {
		if _, ok := o.proposed[id.Request]; ok {
			o.proposed[id.Request] = p
		}
	}
}

// makeRoom forgets the process that was not heard of for longest.
func (f *forwarded) makeRoom() {
	if len(f.origins) < maxOrigins {
		return
	}
	var oldest uint64
	for id, o := range f.origins {
		if oldest == 0 || o.used < f.origins[oldest].used {
			oldest = id
		}
	}
	delete(f.origins, oldest)
}

// notProposed takes back what propose has noted.
func (f *forwarded) notProposed(id ID) {
	if o := f.origins[id.Origin]; o != nil {
		delete(o.proposed, id.Request)
	}
}

// ServeExecute is the leader's side of Peers.Execute: it proposes another member's command, unless
// it has done so before, and returns the result when it has applied the command. term is that of
// the leadership in which the other member believes. NotLeaderError means that nothing was done.
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
	// INVARIANT: whether it may be proposed is asked of a command that was not proposed before. One
	// that was may be refused for what it has done itself.
	first, before, err := x.admit(id, settled, term)
	switch {
	case err != nil:
		return nil, err
	case !first:
		return proposedBefore(ctx, before)
	}
	// The other member is fair among its clients; here it counts as one client.
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

// admit says whether a command is to be proposed, and otherwise which it was before, if that is
// known.
func (x *Executor) admit(id ID, settled, term uint64) (first bool, before *pending, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.leadershipLocked(); !l.IsLeader || l.Term != term || x.mu.forwarded.term != term {
		return false, nil, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	first, before = x.mu.forwarded.propose(id, settled)
	return first, before, nil
}

// proposedBefore answers when a command that was proposed before, in this term, has been applied.
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

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// maxOrigins bounds of how many processes a leader remembers the commands. Only members hand over
// commands, so there are more only if they start again that often in one term.
const maxOrigins = 1024

// forwarded is which commands of other members this leader has proposed in its term. It is what
// keeps a command from being proposed twice when a member asks again. Store.mu guards it.
type forwarded struct {
	term    uint64
	origins map[uint64]*originCommands
	uses    uint64
}

// originCommands are those of one process.
type originCommands struct {
	// settled: the process knows what became of all up to this one, or does not want to know any
	// more; it will not ask again.
	settled uint64
	// proposed has nil for a command that is about to be proposed.
	proposed map[uint64]*pending
	// used is when it was heard of last, by forwarded.uses.
	used uint64
}

func (f *forwarded) begin(term uint64) {
	f.term, f.origins = term, map[uint64]*originCommands{}
}

// propose notes that a command is about to be proposed; false if it was before, or is late.
func (f *forwarded) propose(id commandID, settled uint64) (first bool, before *pending) {
	o := f.origins[id.origin]
	if o == nil {
		f.makeRoom()
		o = &originCommands{proposed: map[uint64]*pending{}}
		f.origins[id.origin] = o
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
	before, again := o.proposed[id.request]
	if id.request <= o.settled || again {
		return false, before
	}
	o.proposed[id.request] = nil
	return true, nil
}

// registered notes that a command waits for its outcome.
func (f *forwarded) registered(id commandID, p *pending) {
	if o := f.origins[id.origin]; o != nil {
		if _, ok := o.proposed[id.request]; ok {
			o.proposed[id.request] = p
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
func (f *forwarded) notProposed(id commandID) {
	if o := f.origins[id.origin]; o != nil {
		delete(o.proposed, id.request)
	}
}

// ServeExecute is the leader's side of Peers.Execute: it proposes another member's command, unless
// it has done so before, and returns the result when it has applied the command. term is the one
// that the other member believes in. A NotLeaderError says that nothing was done.
func (s *Store) ServeExecute(ctx context.Context, term uint64, data []byte) ([]byte, error) {
	c, format, err := decodeCommand(data)
	if err != nil {
		return nil, fmt.Errorf("%w: a member's command: %w", ErrInvalid, err)
	}
	if c.Origin == 0 || c.Origin == s.origin || c.Request == 0 || c.Session != 0 || c.Sequence != 0 {
		return nil, fmt.Errorf("%w: a member's command has no name, or a session", ErrInvalid)
	}
	id, settled := commandID{c.Origin, c.Request}, c.Acknowledged
	c.Acknowledged = 0
	// INVARIANT: whether it may be proposed is asked of a command that was not proposed before. One
	// that was may be refused for what it has done itself.
	first, before, err := s.admit(id, settled, term)
	switch {
	case err != nil:
		return nil, err
	case !first:
		return proposedBefore(ctx, before)
	}
	// The other member gives its clients their turns; here it has its own.
	ctx = WithClient(ctx, fmt.Sprintf("member %x", c.Origin))
	var result *storepb.Result
	if c, err = s.prepare(ctx, c); err == nil {
		result, err = s.attempt(ctx, c, &pending{term: term, format: format})
	}
	switch {
	case result != nil:
		result.Entry = s.index.Load()
		return result.MarshalVT()
	case errors.Is(err, ErrOutcomeUnknown):
		return nil, err
	}
	s.mu.Lock()
	s.mu.forwarded.notProposed(id)
	s.mu.Unlock()
	return refusal(err)
}

// admit says whether a command is to be proposed, and otherwise which it was before, if that is
// known.
func (s *Store) admit(id commandID, settled, term uint64) (first bool, before *pending, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leadershipLocked(); !l.IsLeader || l.Term != term || s.mu.forwarded.term != term {
		return false, nil, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	first, before = s.mu.forwarded.propose(id, settled)
	return first, before, nil
}

// proposedBefore answers when a command that was proposed before, in this term, has been applied.
func proposedBefore(ctx context.Context, p *pending) ([]byte, error) {
	if p == nil {
		return nil, fmt.Errorf("%w: it is being proposed, or was given up", ErrOutcomeUnknown)
	}
	select {
	case <-p.over:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !p.applied {
		return nil, fmt.Errorf("%w: this member stopped leading", ErrOutcomeUnknown)
	}
	return (&storepb.Result{Code: storepb.Code_PROPOSED_BEFORE}).MarshalVT()
}

// refusal is a result that says why nothing was proposed; other errors stay what they are.
func refusal(err error) ([]byte, error) {
	result := &storepb.Result{Message: err.Error()}
	switch compacted := (*CompactedError)(nil); {
	case errors.As(err, &compacted):
		result.Code, result.Compacted = storepb.Code_COMPACTED, compacted.Revision
	case errors.Is(err, ErrFutureRevision):
		result.Code = storepb.Code_FUTURE_REVISION
	case errors.Is(err, ErrDuplicateKey):
		result.Code = storepb.Code_DUPLICATE_KEY
	case errors.Is(err, ErrInvalid):
		result.Code = storepb.Code_INVALID
	case errors.Is(err, ErrImporting):
		result.Code = storepb.Code_IMPORTING
	case errors.Is(err, ErrTooLarge):
		result.Code = storepb.Code_TOO_LARGE
	case errors.Is(err, ErrNoSpace):
		result.Code = storepb.Code_NO_SPACE
	case errors.Is(err, ErrCorrupt):
		result.Code = storepb.Code_CORRUPT
	case errors.Is(err, ErrOldMembers):
		result.Code = storepb.Code_OLD_MEMBERS
	case errors.Is(err, ErrOverloaded):
		result.Code = storepb.Code_OVERLOADED
	default:
		return nil, err
	}
	return result.MarshalVT()
}

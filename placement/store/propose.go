package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// pending is a command that was proposed, until this member knows what became of it: it was
// applied, or the leadership under which it was proposed is over. Its caller may have given up
// before.
type pending struct {
	term uint64
	// size is what it takes of the room.
	size int
	// answer has room for the one result.
	answer chan *storepb.Result
	// lost is closed when the leadership under which it was proposed is over.
	lost chan struct{}
}

// Leadership says which member leads the core, as this member sees it.
type Leadership struct {
	Term uint64
	// Leader is 0 when no leader is known.
	Leader keys.ReplicaID
	// IsLeader: this member leads.
	IsLeader bool
	// Serving: it leads, and has applied everything that was committed before its term.
	Serving bool
}

// Leadership returns which member leads, and a channel that is closed when that changes.
func (s *Store) Leadership() (Leadership, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leadershipLocked(), s.mu.changed
}

func (s *Store) leadershipLocked() Leadership {
	l := s.mu.leadership
	leads := l.IsLeader && !s.mu.closed
	return Leadership{Term: l.Term, Leader: l.Leader, IsLeader: leads,
		Serving: leads && s.mu.appliedTerm == l.Term}
}

// LeadershipChanged implements group.StateMachine.
func (s *Store) LeadershipChanged(l group.Leadership) {
	s.mu.Lock()
	s.mu.leadership = l
	lost := s.takePendingLocked(func(p *pending) bool { return !l.IsLeader || p.term != l.Term })
	serving := s.leadershipLocked().Serving
	s.notifyLocked()
	s.mu.Unlock()
	s.lose(lost)
	s.lessor.activate(serving)
	s.poke()
	s.pokeCompactor()
}

// lose tells the callers of commands that it is not known what becomes of them.
func (s *Store) lose(lost []*pending) {
	for _, p := range lost {
		close(p.lost)
		s.room.leave(p.size)
	}
}

func (s *Store) notifyLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// poke makes keep look.
func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pokeCompactor makes the compactor look.
func (s *Store) pokeCompactor() {
	select {
	case s.long <- struct{}{}:
	default:
	}
}

func (s *Store) takePendingLocked(which func(*pending) bool) []*pending {
	var taken []*pending
	for request, p := range s.mu.pending {
		if which(p) {
			taken = append(taken, p)
			delete(s.mu.pending, request)
		}
	}
	return taken
}

// applied makes an application the newest, and returns the callers that wait for its answers, in
// their order; nil where none does.
func (s *Store) applied(a *application, term uint64) []*pending {
	s.mu.Lock()
	before := s.leadershipLocked().Serving
	s.mu.appliedTerm = term
	s.revision.Store(a.meta.Revision)
	s.compacted.Store(a.meta.Compacted)
	serving := s.leadershipLocked().Serving
	if serving != before {
		s.notifyLocked()
	}
	waiting := make([]*pending, len(a.answers))
	for i, answer := range a.answers {
		waiting[i] = s.mu.pending[answer.request]
		delete(s.mu.pending, answer.request)
	}
	s.mu.Unlock()
	if serving != before {
		s.lessor.activate(serving)
	}
	if serving != before || len(a.leases) > 0 {
		s.poke()
	}
	if s.historyLong() {
		s.pokeCompactor()
	}
	for _, p := range waiting {
		if p != nil {
			s.room.leave(p.size)
		}
	}
	return waiting
}

// Do proposes a command and waits until this member, which has to be the leader, has applied it. A
// NotLeaderError, ErrOverloaded and ErrTooLarge say that nothing was proposed. ErrOutcomeUnknown
// says that it may or may not have taken effect, now or later: with a session the same command can
// be done again, on whichever member leads then. The other errors are the command's own outcome.
func (s *Store) Do(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	if err := validateCommand(c); err != nil {
		return nil, err
	}
	switch op := c.Op.(type) {
	case *storepb.Command_Txn:
		if err := s.checkWork(op.Txn); err != nil {
			return nil, err
		}
	case *storepb.Command_ChangeMembers:
		if err := s.checkMembers(op.ChangeMembers); err != nil {
			return nil, err
		}
	case *storepb.Command_Compact:
		// A long way is done in steps, so that none stops the log for long.
		to := op.Compact.GetRevision()
		for s.Compacted() < to && to <= s.Revision() {
			step, err := s.compactionStep(to)
			if err != nil {
				return nil, err
			}
			if step >= to {
				break
			}
			if _, err := s.do(ctx, Compact(step)); err != nil && !errors.Is(err, ErrCompacted) {
				return nil, err
			}
		}
	}
	return s.do(ctx, c)
}

func (s *Store) do(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	started := time.Now()
	request := s.requests.Add(1)
	data, err := encodeCommand(&storepb.Command{
		Origin: s.origin, Request: request, Session: c.Session, Sequence: c.Sequence,
		Acknowledged: c.Acknowledged, Op: c.Op,
	})
	if err != nil {
		return nil, err
	}
	if len(data) > MaxCommandBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), MaxCommandBytes)
	}
	if err := s.room.enter(ctx, len(data)); err != nil {
		return nil, err
	}
	p := &pending{size: len(data), answer: make(chan *storepb.Result, 1), lost: make(chan struct{})}
	handle, err := s.register(request, p)
	if err != nil {
		s.room.leave(p.size)
		return nil, err
	}
	if err := s.propose(handle, p.term, c, data); err != nil {
		s.unregister(request)
		return nil, fmt.Errorf("propose to the core: %w", err)
	}
	select {
	case result := <-p.answer:
		s.metrics.latency.Observe(time.Since(started).Seconds())
		return result, resultError(result)
	case <-p.lost:
		return nil, fmt.Errorf("%w: this member stopped leading the core at term %d",
			ErrOutcomeUnknown, p.term)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

// register must come before the proposal: LeadershipChanged ends what is registered, and so does
// Apply.
func (s *Store) register(request uint64, p *pending) (Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch l := s.mu.leadership; {
	case s.mu.closed:
		return nil, ErrClosed
	case s.mu.group == nil || !l.IsLeader:
		return nil, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	default:
		p.term = l.Term
	}
	s.mu.pending[request] = p
	return s.mu.group, nil
}

// unregister is for what was not proposed.
func (s *Store) unregister(request uint64) {
	s.mu.Lock()
	p := s.mu.pending[request]
	delete(s.mu.pending, request)
	s.mu.Unlock()
	if p != nil {
		s.room.leave(p.size)
	}
}

// confirm returns when this member has applied everything that was acknowledged anywhere before the
// call: at once on a leader that holds its lease, after a round trip otherwise.
func (s *Store) confirm(ctx context.Context) error {
	s.mu.Lock()
	handle, l, closed := s.mu.group, s.leadershipLocked(), s.mu.closed
	s.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case handle == nil:
		return &NotLeaderError{}
	}
	if term, ok := handle.Lease(); ok && l.Serving && term == l.Term {
		return nil
	}
	done := make(chan error, 1)
	handle.ReadIndex(func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("the core cannot show that it is up to date: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the core cannot show that it is up to date: %w", ctx.Err())
	}
}

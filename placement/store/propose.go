package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// commandID names a command: the process that made it, and how that calls it.
type commandID struct{ origin, request uint64 }

// pending is a command that was proposed, until this member knows what became of it. Its caller may
// have given up before.
type pending struct {
	// term is that in which it was proposed, here or, if elsewhere, at another member.
	term uint64
	// size is what it takes of the room, and reserved what it has reserved of the quota.
	size     int
	reserved uint64
	// format is that of the command, if it is higher than what this version would give it.
	format byte
	// survives: the caller waits beyond the end of the leadership, until the log shows what became
	// of the command (execute.go).
	survives bool
	// group is the entry that it shares with others; nil if it is alone in its own, or is not
	// proposed yet.
	group *entryGroup
	// outcome has room for the one there is.
	outcome chan outcome
	// over is closed when the outcome is known; it is for all but the caller. applied: the command
	// was applied. It is set before.
	over    chan struct{}
	applied bool
}

// outcome is what became of a command: a result, or why there is none.
type outcome struct {
	result *storepb.Result
	err    error
}

// known is a pending command whose outcome is.
type known struct {
	*pending
	outcome outcome
}

func newPending(size int) *pending {
	return &pending{size: size, outcome: make(chan outcome, 1), over: make(chan struct{})}
}

// settle tells callers what became of their commands.
func (s *Store) settle(all []known) {
	for _, k := range all {
		s.room.leave(k.size)
		s.space.Release(k.reserved)
		k.applied = k.outcome.err == nil
		k.pending.outcome <- k.outcome
		close(k.over)
	}
	s.groupsSettled(all)
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
	lost := s.takePendingLocked(func(p *pending) bool {
		return !p.survives && (!l.IsLeader || p.term != l.Term)
	})
	if !l.IsLeader || s.mu.forwarded.term != l.Term {
		s.mu.forwarded.begin(l.Term)
		s.mu.grouping = grouping{term: l.Term}
	}
	serving := s.leadershipLocked().Serving
	s.notifyLocked()
	s.mu.Unlock()
	s.lose(lost)
	s.lessor.Activate(serving && !s.importing.Load())
	s.poke()
	s.pokeCompactor()
}

// lose tells the callers of commands that it is not known what becomes of them.
func (s *Store) lose(lost []*pending) {
	for _, p := range lost {
		s.settle([]known{{p, outcome{err: fmt.Errorf("%w: this member stopped leading %s at term %d",
			ErrOutcomeUnknown, s.config.Name, p.term)}}})
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

// awaits says whether a caller waits for what a command comes to.
func (s *Store) awaits(id commandID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.pending[id] != nil
}

// applied makes an application the newest. It returns the commands of which the outcome is known
// now, in the order of the log, and the reads that waited for what is applied.
func (s *Store) applied(a *application, term uint64) ([]known, []reaching) {
	s.mu.Lock()
	before, newTerm := s.leadershipLocked().Serving, term != s.mu.appliedTerm
	s.mu.appliedTerm = term
	s.revision.Store(a.meta.Revision)
	s.compacted.Store(a.meta.Compacted)
	if a.meta.CompactionRest != nil {
		s.restLocked(a.meta) // its end is told by compactionApplied
	}
	s.index.Store(a.index)
	imports := importing(a.meta)
	importChanged := s.importing.Swap(imports) != imports
	serving := s.leadershipLocked().Serving
	if serving != before {
		s.notifyLocked()
	}
	var all []known
	for _, answer := range a.answers {
		if p := s.mu.pending[answer.id]; p != nil { // else its caller knows it from the leader
			delete(s.mu.pending, answer.id)
			all = append(all, known{p, outcome{result: answer.result}})
		}
	}
	if newTerm {
		all = append(all, s.supersededLocked()...)
	}
	waiting := s.reachedLocked(a.index)
	s.mu.Unlock()
	if serving != before || importChanged {
		s.lessor.Activate(serving && !imports)
	}
	if serving != before || importChanged || len(a.leases) > 0 {
		s.poke()
	}
	if serving != before {
		s.pokeCompactor()
	}
	return all, waiting
}

// Do proposes a command and waits until this member, which has to be the leader, has applied it. A
// NotLeaderError, ErrOverloaded and ErrTooLarge say that nothing was proposed. ErrOutcomeUnknown
// says that it may or may not have taken effect, now or later: with a session the same command can
// be done again, on whichever member leads then. The other errors are the command's own outcome.
func (s *Store) Do(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	c, err := s.prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.do(ctx, c)
}

// prepare refuses what is not to be proposed, does what comes before, and returns what is to be
// proposed.
func (s *Store) prepare(ctx context.Context, c *storepb.Command) (*storepb.Command, error) {
	if err := validateCommand(c); err != nil {
		return nil, err
	}
	if err := s.checkFormat(c); err != nil {
		return nil, err
	}
	if err := s.checkAlarms(ctx, c); err != nil {
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
		return s.prepareCompaction(ctx, c, op.Compact)
	}
	return c, nil
}

// do proposes a command of this process, if this member leads.
func (s *Store) do(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	return s.attempt(ctx, s.own(c), &pending{})
}

// own is a command by a new name of this process. It shares what is to be done with c.
func (s *Store) own(c *storepb.Command) *storepb.Command {
	return &storepb.Command{Origin: s.origin, Request: s.requests.Add(1), Session: c.Session,
		Sequence: c.Sequence, Acknowledged: c.Acknowledged, Auth: c.Auth, Op: c.Op}
}

// attempt proposes a command once and waits for its outcome. like says how the command waits: its
// term, if it is not 0, is the only one in which it may be proposed.
func (s *Store) attempt(
	ctx context.Context, c *storepb.Command, like *pending,
) (*storepb.Result, error) {
	started := time.Now()
	data, err := encodeCommand(c)
	if err != nil {
		return nil, err
	}
	data[0] = max(data[0], like.format)
	if len(data) > MaxCommandBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), MaxCommandBytes)
	}
	// What waits for its turn counts as let in. A command that is refused holds no place meanwhile,
	// so that the alarm that it raises finds one.
	reserved, err := s.reserve(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.room.enter(ctx, clientOf(ctx), len(data)); err != nil {
		s.space.Release(reserved)
		return nil, err
	}
	p := newPending(len(data))
	p.term, p.survives, p.reserved = like.term, like.survives, reserved
	id := commandID{c.Origin, c.Request}
	handle, err := s.register(id, p)
	if err != nil {
		s.room.leave(p.size)
		s.space.Release(p.reserved)
		return nil, err
	}
	if s.config.GroupCommands && groups(c) {
		s.join(id, p, data)
	} else if err := s.propose(handle, p.term, c, data); err != nil {
		s.unregister(id)
		return nil, fmt.Errorf("propose to %s: %w", s.config.Name, err)
	}
	select {
	case o := <-p.outcome:
		if o.err != nil {
			return nil, o.err
		}
		s.metrics.latency.Observe(time.Since(started).Seconds())
		return o.result, resultError(o.result)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
	}
}

// register must come before the proposal: LeadershipChanged ends what is registered, and so does
// Apply.
func (s *Store) register(id commandID, p *pending) (Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.leadership
	switch {
	case s.mu.closed:
		return nil, ErrClosed
	case s.mu.group == nil || !l.IsLeader || p.term != 0 && p.term != l.Term,
		// It was judged by its quota in a leadership before.
		p.reserved > 0 && !s.leadershipLocked().Serving:
		return nil, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	p.term = l.Term
	s.mu.pending[id] = p
	s.mu.forwarded.registered(id, p)
	return s.mu.group, nil
}

// unregister is for what was not proposed, or is known by other means.
func (s *Store) unregister(id commandID) {
	s.mu.Lock()
	p := s.mu.pending[id]
	delete(s.mu.pending, id)
	s.mu.Unlock()
	if p != nil {
		s.room.leave(p.size)
		s.space.Release(p.reserved)
		close(p.over)
	}
}

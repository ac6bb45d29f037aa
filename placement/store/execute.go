package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Commands that come in at any member.
//
// A member that does not lead hands the command to the one that does, with the term in which it
// believes that one to lead. The command is proposed in that term or not at all. Both members apply
// the log, so the outcome is found without any record of commands that were executed:
//
//   - The leader answers when it has applied the command. If the member has applied it sooner, that
//     answers the caller: reads have all that is committed, at every member (confirm.go).
//   - If the answer does not come, the member asks again, in the same term. The leader remembers
//     which commands it has proposed in its term, and proposes none twice (forward.go).
//   - When the member has applied an entry of a later term, the command was applied here before, or
//     never will be anywhere: entries of a term come before those of a later one. So it can be
//     proposed again in that term, and takes effect once.
//
// A snapshot skips entries. What became of commands that were under way is then not known.

// errNever says that a command was not proposed, or was and never will be applied.
var errNever = errors.New("the command was not applied, and never will be")

// againAfter is when a member asks the leader again whose answer did not come.
const againAfter = 50 * time.Millisecond

// Peers reaches other members of the store. Its methods return a NotLeaderError if the member did
// nothing because it does not lead (at that term); any other error leaves open what it did.
type Peers interface {
	// Execute hands an encoded command to the member that leads at a term, whose Store.ServeExecute
	// takes it.
	Execute(ctx context.Context, leader keys.ReplicaID, term uint64, command []byte) ([]byte, error)
	// Index asks the leader for an index: Store.ServeIndex.
	Index(ctx context.Context, leader keys.ReplicaID) (uint64, error)
	// RenewAll has the leader renew leases: Store.KeepAliveAll.
	RenewAll(ctx context.Context, leader keys.ReplicaID, leases []int64) ([]time.Duration, error)
	// TimeToLive asks the leader how long a lease has left: Store.ServeTimeToLive.
	TimeToLive(ctx context.Context, leader keys.ReplicaID, lease int64) (time.Duration, error)
}

// Execute is Do on any member, and applies the command at most once. It waits for a leader, and
// goes on under the next one when that changes, until ctx ends: a NotLeaderError or ErrOverloaded
// then says that nothing was proposed, ErrOutcomeUnknown that the command may have taken effect or
// may yet. The command must have no session.
func (s *Store) Execute(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	if err := validateCommand(c); err != nil {
		return nil, err
	}
	if c.Session != 0 {
		return nil, fmt.Errorf("%w: a session is not needed here", ErrInvalid)
	}
	for {
		l, _ := s.Leadership()
		result, err := s.executeAt(ctx, l, c)
		if notLeader := (*NotLeaderError)(nil); !errors.Is(err, errNever) &&
			!errors.As(err, &notLeader) {
			return result, err
		}
		if waitErr := s.leadershipAfter(ctx, indexAgain); waitErr != nil {
			return nil, fmt.Errorf("%w: %w", &NotLeaderError{Leader: l.Leader, Term: l.Term}, waitErr)
		}
	}
}

// executeAt tries to execute a command under a leader. A NotLeaderError and errNever say that it is
// not, and never will be, applied.
func (s *Store) executeAt(
	ctx context.Context, l Leadership, c *storepb.Command,
) (*storepb.Result, error) {
	switch {
	case l.IsLeader:
		c, err := s.prepare(ctx, c)
		if err != nil {
			return nil, err
		}
		return s.attempt(ctx, s.own(c), &pending{term: l.Term, survives: true})
	case l.Leader == 0 || s.config.Peers == nil:
		return nil, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	return s.handOver(ctx, l, c)
}

// handOver has the leader execute a command.
func (s *Store) handOver(
	ctx context.Context, l Leadership, c *storepb.Command,
) (*storepb.Result, error) {
	size := c.SizeVT() + commandOverhead
	if size > MaxCommandBytes {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, size, MaxCommandBytes)
	}
	if err := s.room.enter(ctx, clientOf(ctx), size); err != nil {
		return nil, err
	}
	p := newPending(size)
	p.term, p.survives = l.Term, true
	command := &storepb.Command{Origin: s.origin, Auth: c.Auth, Op: c.Op}
	id, err := s.expect(p, command)
	if err != nil {
		s.room.leave(size)
		return nil, err
	}
	data, err := encodeCommand(command)
	if err != nil {
		s.unregister(id)
		return nil, err
	}
	result, err := s.follow(ctx, l, p, data)
	s.unregister(id)
	if err != nil {
		return nil, err
	}
	// The caller finds what it has done, on this member, whatever it reads. The command is done if it
	// does not want to wait for that any more.
	_ = s.reach(ctx, result.Entry)
	return result, resultError(result)
}

// commandOverhead is by how much the names of a command make it longer.
const commandOverhead = 64

// expect names a command that another member is to propose, and registers it.
//
// INVARIANT: from when it has its number on it counts as not settled.
func (s *Store) expect(p *pending, c *storepb.Command) (commandID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed:
		return commandID{}, ErrClosed
	case s.mu.appliedTerm > p.term:
		return commandID{}, &NotLeaderError{Leader: s.mu.leadership.Leader,
			Term: s.mu.leadership.Term}
	}
	c.Request = s.requests.Add(1)
	id := commandID{c.Origin, c.Request}
	if id.request%settledEvery == 0 {
		c.Acknowledged = s.settledLocked(id.request)
	}
	s.mu.pending[id] = p
	return id, nil
}

// settledEvery is with how many of its commands a process says which are settled.
const settledEvery = 64

// settledLocked is up to where this process knows what became of all of its commands.
func (s *Store) settledLocked(newest uint64) uint64 {
	oldest := newest
	for id := range s.mu.pending {
		if id.origin == s.origin {
			oldest = min(oldest, id.request)
		}
	}
	return oldest - 1
}

// reply is what another member says of a command.
type reply struct {
	result []byte
	err    error
}

// follow hands a command over, again if need be, until its outcome is known.
func (s *Store) follow(
	ctx context.Context, l Leadership, p *pending, data []byte,
) (*storepb.Result, error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	replies := make(chan reply, 1)
	ask := func() {
		result, err := s.config.Peers.Execute(asking, l.Leader, l.Term, data)
		replies <- reply{result, err}
	}
	timer := time.NewTimer(againAfter)
	timer.Stop()
	defer timer.Stop()
	if !s.start(ask) {
		return nil, ErrClosed
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
			if now, _ := s.Leadership(); now.Term == l.Term && now.Leader == l.Leader {
				asked++
				s.start(ask) // if the store is closed, the outcome says so
			}
		case o := <-p.outcome:
			return o.result, o.err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, ctx.Err())
		}
	}
}

// heard takes what the leader says. Neither a result nor an error: what became of the command is
// still open, or, if it was applied, what it came to.
func heard(r reply, asked int) (result *storepb.Result, applied bool, err error) {
	if r.err != nil {
		if notLeader := (*NotLeaderError)(nil); errors.As(r.err, &notLeader) && asked == 1 {
			return nil, false, notLeader
		}
		// It may have been proposed. If that member leads no more, the log will show.
		return nil, false, nil
	}
	result = &storepb.Result{}
	if err := result.UnmarshalVT(r.result); err != nil {
		return nil, false, fmt.Errorf("%w: the leader's answer is malformed: %w", ErrOutcomeUnknown,
			err)
	}
	switch result.Code {
	case storepb.Code_OVERLOADED:
		return nil, false, fmt.Errorf("%w: %s", ErrOverloaded, result.Message)
	case storepb.Code_PROPOSED_BEFORE:
		return nil, true, nil
	}
	return result, true, nil
}

// supersededLocked takes the commands that were proposed in terms before the newest that is applied
// here: what is not applied by now never will be.
func (s *Store) supersededLocked() (all []known) {
	for id, p := range s.mu.pending {
		if !p.survives || p.term >= s.mu.appliedTerm {
			continue
		}
		delete(s.mu.pending, id)
		all = append(all, known{p, outcome{err: errNever}})
	}
	return all
}

// skipped is for when a snapshot was installed: which of the commands under way are in it is not
// known.
func (s *Store) skipped() {
	s.mu.Lock()
	s.mu.appliedTerm = s.machine.term
	skipped := s.takePendingLocked(func(p *pending) bool {
		return p.survives && p.term <= s.mu.appliedTerm
	})
	waiting := s.reachedLocked(s.machine.index)
	s.mu.Unlock()
	var all []known
	for _, p := range skipped {
		all = append(all, known{p, outcome{err: fmt.Errorf(
			"%w: this member of %s was behind, and was sent the state as a whole", ErrOutcomeUnknown,
			s.config.Name)}})
	}
	s.settle(all)
	wakeReaching(waiting)
}

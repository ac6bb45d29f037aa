package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// KeepAlive gives a lease a full term from now and returns the term. Only the leader can, and it
// first makes sure that it still leads. A lease that ran out cannot be renewed: ErrLeaseNotFound.
func (s *Store) KeepAlive(ctx context.Context, id int64) (time.Duration, error) {
	terms, err := s.KeepAliveAll(ctx, []int64{id})
	return onlyTerm(id, terms, err)
}

func onlyTerm(id int64, terms []time.Duration, err error) (time.Duration, error) {
	switch {
	case err != nil:
		return 0, err
	case terms[0] == 0:
		return 0, fmt.Errorf("%w: lease %d", ErrLeaseNotFound, id)
	}
	return terms[0], nil
}

// KeepAliveAll is KeepAlive of several leases. The term of one that cannot be renewed is 0.
//
// Another member may have applied a grant, or the end of a lease, and acknowledged it, before this
// one. So the renewal goes through three steps:
//
//  1. This member applies all that was acknowledged before the call.
//  2. The deadlines of the leases that exist then are moved.
//  3. This member shows that it led when they were moved.
//
// INVARIANT: whether a lease exists is decided after step 1. A lease whose end was acknowledged
// before the call is not renewed, and one whose grant was is.
// INVARIANT: leadership is shown after the deadlines were moved. A process that stood still before
// may have been replaced, and leases have ended elsewhere.
func (s *Store) KeepAliveAll(ctx context.Context, ids []int64) ([]time.Duration, error) {
	led, _ := s.Leadership()
	if !led.Serving {
		return nil, &NotLeaderError{Leader: led.Leader, Term: led.Term}
	}
	if err := s.confirm(ctx); err != nil {
		return nil, err
	}
	if err := s.Importing(); err != nil {
		return nil, err
	}
	terms := make([]time.Duration, len(ids))
	if err := s.moveDeadlines(ctx, ids, terms); err != nil {
		return nil, err
	}
	if _, err := s.committed(ctx); err != nil {
		return nil, err
	}
	if l, _ := s.Leadership(); !l.Serving || l.Term != led.Term {
		return nil, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	return terms, nil
}

// moveDeadlines moves the deadlines of the leases that this member knows, and fills in their terms,
// once the log says of none of them any more how much it had left.
func (s *Store) moveDeadlines(ctx context.Context, ids []int64, terms []time.Duration) error {
	noted, err := s.renew(ids, terms)
	for len(noted) > 0 && err == nil {
		s.awaitNotes()
		for most := range slices.Chunk(noted, lease.MaxNotes) {
			if _, err := s.do(ctx, checkpoint(most...)); err != nil {
				return err
			}
		}
		noted, err = s.renew(ids, terms)
	}
	return err
}

// renew is Lessor.Renew.
func (s *Store) renew(
	ids []int64, terms []time.Duration,
) (noted []*storepb.LeaseCheckpoint_Lease, err error) {
	noted, err = s.lessor.Renew(ids, terms)
	if errors.Is(err, lease.ErrNotCounting) {
		err = &NotLeaderError{}
	}
	return noted, err
}

// awaitNotes returns when what was noted until now is proposed.
func (s *Store) awaitNotes() {
	s.noting.Lock()
	defer s.noting.Unlock()
}

// checkpoint is a command that says how long leases have left.
func checkpoint(leases ...*storepb.LeaseCheckpoint_Lease) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_LeaseCheckpoint{
		LeaseCheckpoint: &storepb.LeaseCheckpoint{Leases: leases}}}
}

// LeaseInfo says how a lease stands. How much is left only the leader knows; elsewhere it is the
// full term.
type LeaseInfo struct {
	ID   int64
	Term time.Duration
	Left time.Duration
	// Keys are those that end with it.
	Keys [][]byte
}

// Lease describes a lease as this member knows it.
func (s *Store) Lease(id int64) (LeaseInfo, error) {
	info := LeaseInfo{ID: id}
	if err := s.Importing(); err != nil {
		return info, err
	}
	var ok bool
	if info.Term, info.Left, ok = s.lessor.Remaining(id); !ok {
		return info, fmt.Errorf("%w: lease %d", ErrLeaseNotFound, id)
	}
	if l, _ := s.Leadership(); !l.Serving {
		info.Left = info.Term
	}
	err := s.read(func(r *reader) (err error) {
		info.Keys, err = attachedKeys(r, id)
		return err
	})
	return info, err
}

// keep ends leases, on the leader. It is one goroutine, from New to Close, and waits for nothing
// but the time.
func (s *Store) keep() {
	timer := time.NewTimer(lease.Tick)
	defer timer.Stop()
	tick := lease.Tick
	for {
		timer.Stop()
		if s.lessor.Counting() {
			timer.Reset(tick)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		if tick = lease.Tick; s.keepOnce() {
			tick = lease.BusyTick
		}
	}
}

// keepOnce proposes what is due, and says whether there is more.
//
// INVARIANT: what is decided is proposed in the term in which it was, and what is noted before a
// renewal takes it back (noting).
func (s *Store) keepOnce() (more bool) {
	l, _ := s.Leadership()
	s.noting.Lock()
	defer s.noting.Unlock()
	due := s.lessor.Due()
	if due.Paused {
		s.config.Logger.Warn("the process was paused; leases get a full term, once until they "+
			"are renewed", "leases", s.lessor.Count())
	}
	var ends []*storepb.Command
	for _, id := range due.Ended {
		ends = append(ends, &storepb.Command{Op: &storepb.Command_LeaseRevoke{
			LeaseRevoke: &storepb.LeaseRevoke{Id: id, Expired: true}}})
	}
	if len(ends) > 0 && s.proposeAside(l.Term, ends...) {
		for _, id := range due.Ended {
			s.metrics.expired.Inc()
			s.config.Logger.Info("lease ran out", "lease", id)
		}
	}
	if len(due.Notes) > 0 {
		s.proposeAside(l.Term, checkpoint(due.Notes...))
	}
	return due.More
}

// proposeAside proposes what the leader has decided by itself, in the term in which it has, and
// does not wait for it. If it gets lost with the leadership, the next leader counts anew.
func (s *Store) proposeAside(term uint64, commands ...*storepb.Command) bool {
	s.mu.Lock()
	handle, leads := s.mu.group, s.mu.leadership.IsLeader && s.mu.leadership.Term == term
	s.mu.Unlock()
	if handle == nil || !leads {
		return false
	}
	var entries [][]grouped
	for i, c := range commands {
		data, err := encodeCommand(c)
		if err != nil {
			s.config.Logger.Warn("what is to be done about leases cannot be encoded", "error", err)
			return false
		}
		if i == 0 || !s.config.GroupCommands {
			entries = append(entries, nil)
		}
		last := &entries[len(entries)-1]
		*last = append(*last, grouped{data: data})
	}
	for _, entry := range entries {
		if err := handle.Propose(term, encodeGroup(entry)); err != nil {
			s.config.Logger.Warn("what the leader does about leases could not be proposed", "error", err)
			return false
		}
	}
	return true
}

// Renew is KeepAlive on any member. It waits for a leader until ctx ends.
func (s *Store) Renew(ctx context.Context, id int64) (time.Duration, error) {
	terms, err := s.RenewAll(ctx, []int64{id})
	return onlyTerm(id, terms, err)
}

// RenewAll is KeepAliveAll on any member. It waits for a leader until ctx ends. What comes at a
// member meanwhile goes to the leader together.
func (s *Store) RenewAll(ctx context.Context, ids []int64) (terms []time.Duration, err error) {
	err = s.atLeader(ctx, func(l Leadership) error {
		if l.IsLeader {
			terms, err = s.KeepAliveAll(ctx, ids)
		} else {
			terms, err = s.renewals.ask(ctx, s, ids)
		}
		return err
	})
	return terms, err
}

// TimeToLive is Lease on any member: what is left the leader says. It waits for one until ctx ends.
func (s *Store) TimeToLive(ctx context.Context, id int64) (info LeaseInfo, err error) {
	err = s.atLeader(ctx, func(l Leadership) error {
		if err := s.confirm(ctx); err != nil {
			return err
		}
		if info, err = s.Lease(id); err != nil || l.IsLeader {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, indexTimeout)
		defer cancel()
		info.Left, err = s.config.Peers.TimeToLive(limited, l.Leader, id)
		return err
	})
	return info, err
}

// ServeTimeToLive is the leader's side of Peers.TimeToLive: how much is left of a lease that was
// granted, and acknowledged by any member, before the call.
func (s *Store) ServeTimeToLive(ctx context.Context, id int64) (time.Duration, error) {
	// A leader that another one has succeeded, which it does not know yet, cannot say.
	index, err := s.ServeIndex(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.reach(ctx, index); err != nil {
		return 0, err
	}
	if err := s.Importing(); err != nil {
		return 0, err
	}
	_, left, ok := s.lessor.Remaining(id)
	if l, _ := s.Leadership(); !l.Serving {
		return 0, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	if !ok {
		return 0, fmt.Errorf("%w: lease %d", ErrLeaseNotFound, id)
	}
	return left, nil
}

// atLeader asks the leader, and asks again as long as that cannot be reached, or is none any more.
func (s *Store) atLeader(ctx context.Context, ask func(Leadership) error) error {
	for {
		if err := s.Importing(); err != nil {
			return err
		}
		l, _ := s.Leadership()
		err := error(&NotLeaderError{Leader: l.Leader, Term: l.Term})
		if l.Serving || l.Leader != 0 && !l.IsLeader && s.config.Peers != nil {
			err = ask(l)
		}
		if err == nil || errors.Is(err, ErrLeaseNotFound) || errors.Is(err, ErrClosed) ||
			errors.Is(err, ErrImporting) || s.config.Peers == nil {
			return err
		}
		if waitErr := s.leadershipAfter(ctx, indexAgain); waitErr != nil {
			return fmt.Errorf("%w: %w", waitErr, err)
		}
	}
}

// Leases lists the leases that exist as far as this member knows, as LeasesAs does.
func (s *Store) Leases() []int64 { return s.lessor.IDs() }

// LeasesAs lists the leases that this member knows and that a client may see, by when they run out.
// If Read returned before, it knows all that were granted, and acknowledged anywhere, before Read
// was called. When leases run out the leader knows; elsewhere their renewals do not count. who is
// nil for the servers themselves.
//
// An administrator sees all leases. Any other user sees those with keys, all of which the user may
// read: who knows the id of a lease without keys can revoke it.
func (s *Store) LeasesAs(ctx context.Context, who *storepb.AuthInfo) ([]int64, error) {
	var visible map[int64]bool
	err := s.readWhole(func(r *reader) error {
		state, err := s.authorityOf(r)
		if err != nil || state == nil || state.Admin(who) == nil {
			return err
		}
		if err := state.Identified(who); err != nil {
			return err
		}
		visible, err = readableLeases(ctx, r, func(key []byte) error {
			return state.Read(who, key, nil)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	all := s.lessor.IDs()
	if visible != nil {
		all = slices.DeleteFunc(all, func(id int64) bool { return !visible[id] })
	}
	return all, nil
}

// readableLeases are the leases that have keys, and none that may refuses with ErrPermissionDenied.
func readableLeases(
	ctx context.Context, r *reader, may func(key []byte) error,
) (map[int64]bool, error) {
	readable, passed := map[int64]bool{}, 0
	end := r.end(tableAttached)
	for ok := r.seek(r.table(tableAttached), end); ok; ok = r.next(end) {
		if passed++; passed%interruptEvery == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		id, key, err := decodeNumberKey(r.it.Key())
		if err != nil {
			return nil, err
		}
		if before, seen := readable[int64(id)]; seen && !before {
			continue
		}
		err = may(key)
		if err != nil && !errors.Is(err, authority.ErrPermissionDenied) {
			return nil, err
		}
		readable[int64(id)] = err == nil
	}
	return readable, r.it.Error()
}

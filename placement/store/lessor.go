package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

const (
	// lessorTick is how often the leader looks for leases that ran out.
	lessorTick = 250 * time.Millisecond
	// pauseTolerance is by how much a tick may be late before the leader takes it that its process
	// was paused, and that the
	// silence of the leases' owners was its own.
	pauseTolerance = 2 * time.Second
	// expiriesPerTick bounds how many leases end at once.
	expiriesPerTick = 128
)

// lessor knows which leases exist, and on the leader how long each has left. It counts on the
// monotonic clock.
type lessor struct {
	// now is a time that ascends like the monotonic clock; it shows no wall clock's time.
	now func() time.Time
	mu  struct {
		sync.Mutex
		leases map[int64]*countdown
		// keys is how many keys each lease has, for those that have any.
		keys map[int64]int
		// active: this member leads, and has applied everything that was committed before its term.
		active bool
		// ticked is when expired was last called.
		ticked time.Time
	}
}

type countdown struct {
	term     time.Duration
	deadline time.Time
	// ending is when its end was proposed; zero if it was not. From then on it cannot be renewed.
	ending time.Time
	// spared: since it was renewed it has got a full term because the process was paused.
	spared bool
}

func newLessor(clock hlc.Monotonic) *lessor {
	l := &lessor{now: func() time.Time { return time.Unix(0, clock()) }}
	l.mu.leases, l.mu.keys = map[int64]*countdown{}, map[int64]int{}
	return l
}

// replace forgets everything and takes over what is in the state: the leases, and how many keys
// they have.
func (l *lessor) replace(leases []leaseChange, keys map[int64]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.mu.leases)
	clear(l.mu.keys)
	l.changedLocked(leases, keys)
}

// changed follows what was applied; keys is how many keys leases have got or lost.
func (l *lessor) changed(changes []leaseChange, keys map[int64]int) {
	if len(changes) == 0 && len(keys) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changedLocked(changes, keys)
}

func (l *lessor) changedLocked(changes []leaseChange, keys map[int64]int) {
	for id, n := range keys {
		if l.mu.keys[id] += n; l.mu.keys[id] == 0 {
			delete(l.mu.keys, id)
		}
	}
	now := l.now()
	if len(l.mu.leases) == 0 {
		l.mu.ticked = now // nothing was counted until now
	}
	for _, c := range changes {
		if c.ttlMillis == 0 {
			delete(l.mu.leases, c.id)
			continue
		}
		term := time.Duration(c.ttlMillis) * time.Millisecond
		l.mu.leases[c.id] = &countdown{term: term, deadline: now.Add(term)}
	}
}

// activate starts counting, with a full term for every lease; deactivate stops.
func (l *lessor) activate(active bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active == active {
		return
	}
	l.mu.active = active
	l.mu.ticked = l.now()
	if !active {
		return
	}
	for _, c := range l.mu.leases {
		c.deadline, c.ending, c.spared = l.mu.ticked.Add(c.term), time.Time{}, false
	}
}

// spareLocked is for when the process was paused, and no renewals were heard: every lease gets a
// full term from now on. One that got that before and was not renewed since gets only back what the
// silence has taken, so that a process that stands still again and again does not keep the leases
// of owners that are gone.
func (l *lessor) spareLocked(now time.Time, silence time.Duration) {
	for _, c := range l.mu.leases {
		if !c.ending.IsZero() {
			continue // it ran out before; its end may be in the log
		}
		if c.spared {
			c.deadline = c.deadline.Add(silence)
		} else {
			c.deadline = now.Add(c.term)
		}
		c.spared = true
	}
}

// renew moves the deadline of a lease. The caller has made sure, since the call began, that this
// member leads.
func (l *lessor) renew(id int64) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.leases[id]
	switch {
	case !l.mu.active:
		return 0, &NotLeaderError{}
	case c == nil || !c.ending.IsZero():
		return 0, fmt.Errorf("%w: lease %d", ErrLeaseNotFound, id)
	}
	c.deadline, c.spared = l.now().Add(c.term), false
	return c.term, nil
}

// expired returns leases that ran out, and marks them. A lease whose end was proposed a while ago
// and did not come is returned again. paused says that the process was paused, and that every lease
// got a full term.
func (l *lessor) expired() (ids []int64, paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.active {
		return nil, false
	}
	now := l.now()
	silence := now.Sub(l.mu.ticked)
	paused = silence > lessorTick+pauseTolerance
	l.mu.ticked = now
	if paused {
		l.spareLocked(now, silence)
		return nil, true
	}
	for id, c := range l.mu.leases {
		if now.Before(c.deadline) || (!c.ending.IsZero() && now.Sub(c.ending) < 4*pauseTolerance) {
			continue
		}
		c.ending = now
		if ids = append(ids, id); len(ids) == expiriesPerTick {
			break
		}
	}
	return ids, false
}

// counting says whether there is anything to count down.
func (l *lessor) counting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.active && len(l.mu.leases) > 0 {
		return true
	}
	l.mu.ticked = l.now() // not a pause
	return false
}

func (l *lessor) remaining(id int64) (term, left time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.mu.leases[id]
	if c == nil {
		return 0, 0, false
	}
	return c.term, max(0, c.deadline.Sub(l.now())), true
}

// attached is how many keys a lease has.
func (l *lessor) attached(id int64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.keys[id]
}

func (l *lessor) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.leases)
}

// KeepAlive gives a lease a full term from now and returns the term. Only the leader can, and it
// first makes sure that it still leads. A lease that ran out cannot be renewed: ErrLeaseNotFound.
func (s *Store) KeepAlive(ctx context.Context, id int64) (time.Duration, error) {
	if l, _ := s.Leadership(); !l.Serving {
		return 0, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	if err := s.confirm(ctx); err != nil {
		return 0, err
	}
	return s.lessor.renew(id)
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
	var ok bool
	if info.Term, info.Left, ok = s.lessor.remaining(id); !ok {
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
	timer := time.NewTimer(lessorTick)
	defer timer.Stop()
	for {
		timer.Stop()
		if s.lessor.counting() {
			timer.Reset(lessorTick)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		ids, paused := s.lessor.expired()
		if paused {
			s.config.Logger.Warn("the process was paused; leases get a full term, once until they "+
				"are renewed", "leases", s.lessor.count())
		}
		for _, id := range ids {
			s.expire(id)
		}
	}
}

// expire proposes the end of a lease and does not wait for it. If that gets lost with the
// leadership, the next leader counts anew.
func (s *Store) expire(id int64) {
	s.mu.Lock()
	handle, term, leads := s.mu.group, s.mu.leadership.Term, s.mu.leadership.IsLeader
	s.mu.Unlock()
	if handle == nil || !leads {
		return
	}
	data, err := encodeCommand(&storepb.Command{
		Op: &storepb.Command_LeaseRevoke{LeaseRevoke: &storepb.LeaseRevoke{Id: id, Expired: true}}})
	if err == nil {
		err = handle.Propose(term, data)
	}
	if err != nil {
		s.config.Logger.Warn("a lease ran out and its end could not be proposed",
			"lease", id, "error", err)
		return
	}
	s.metrics.expired.Inc()
	s.config.Logger.Info("lease ran out", "lease", id)
}

// Renew is KeepAlive on any member. It waits for a leader until ctx ends.
func (s *Store) Renew(ctx context.Context, id int64) (term time.Duration, err error) {
	err = s.atLeader(ctx, func(l Leadership) error {
		if l.IsLeader {
			term, err = s.KeepAlive(ctx, id)
		} else {
			term, err = s.config.Peers.Renew(ctx, l.Leader, id)
		}
		return err
	})
	return term, err
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
		info.Left, err = s.config.Peers.TimeToLive(ctx, l.Leader, id)
		return err
	})
	return info, err
}

// atLeader asks the leader, and asks again as long as that cannot be reached, or is none any more.
func (s *Store) atLeader(ctx context.Context, ask func(Leadership) error) error {
	for {
		l, _ := s.Leadership()
		err := error(&NotLeaderError{Leader: l.Leader, Term: l.Term})
		if l.Serving || l.Leader != 0 && !l.IsLeader && s.config.Peers != nil {
			err = ask(l)
		}
		if err == nil || errors.Is(err, ErrLeaseNotFound) || errors.Is(err, ErrClosed) ||
			s.config.Peers == nil {
			return err
		}
		if waitErr := s.leadershipAfter(ctx, indexAgain); waitErr != nil {
			return fmt.Errorf("%w: %w", waitErr, err)
		}
	}
}

// Leases lists the leases that exist as far as this member knows, by ascending id.
func (s *Store) Leases() []int64 {
	s.lessor.mu.Lock()
	defer s.lessor.mu.Unlock()
	return slices.Sorted(maps.Keys(s.lessor.mu.leases))
}

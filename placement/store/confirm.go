package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A read of the newest state waits until this member has applied what was committed anywhere when
// the read began. The leader knows how far that is: followers learn it from the leader, so none of
// them has applied more than the leader knows to be committed, though it may have applied more than
// the leader has. A member that does not lead asks the leader.
//
// INVARIANT: a question that is answered for a read was asked after the read began.

const (
	// indexTimeout bounds one question to the leader, indexAgain is when it is asked again after one
	// that failed.
	indexTimeout = time.Second
	indexAgain   = 20 * time.Millisecond
)

// confirm returns when this member has applied everything that was acknowledged anywhere before the
// call: at once on a leader that holds its lease, after a round trip otherwise.
func (s *Store) confirm(ctx context.Context) error {
	for {
		index, err := s.committed(ctx)
		switch {
		case err == nil:
			return s.reach(ctx, index)
		case s.config.Peers == nil || errors.Is(err, ErrClosed):
			return err
		}
		// The leader is gone, or there is none yet.
		if waitErr := s.leadershipAfter(ctx, indexAgain); waitErr != nil {
			return fmt.Errorf("%s cannot show that it is up to date: %w: %w", s.config.Name, waitErr, err)
		}
	}
}

// committed is up to where the log was committed at some moment of the call, as far as any member
// could have acted on it.
func (s *Store) committed(ctx context.Context) (uint64, error) {
	s.mu.Lock()
	handle, l, closed := s.mu.group, s.leadershipLocked(), s.mu.closed
	s.mu.Unlock()
	switch {
	case closed:
		return 0, ErrClosed
	case handle == nil:
		return 0, &NotLeaderError{}
	case !l.IsLeader && s.config.Peers != nil:
		if l.Leader == 0 {
			return 0, &NotLeaderError{}
		}
		return s.indexes.ask(ctx, s)
	}
	index := handle.Committed()
	if term, ok := handle.Lease(); ok && l.Serving && term == l.Term {
		return index, nil
	}
	done := make(chan error, 1)
	handle.ReadIndex(func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			return 0, fmt.Errorf("the core cannot show that it is up to date: %w", err)
		}
		return 0, nil // it is applied
	case <-ctx.Done():
		return 0, fmt.Errorf("the core cannot show that it is up to date: %w", ctx.Err())
	}
}

// ServeIndex is the leader's side of Peers.Index: what a member has to have applied that answers a
// read now.
func (s *Store) ServeIndex(ctx context.Context) (uint64, error) {
	if l, _ := s.Leadership(); !l.IsLeader {
		return 0, &NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	index, err := s.committed(ctx)
	if err != nil {
		return 0, err
	}
	return max(index, s.index.Load()), nil
}

// readIndexes asks the leader for all reads that come at a member meanwhile, one question at a
// time.
type readIndexes struct {
	mu struct {
		sync.Mutex
		// next is the question that reads join; nil: none does. asking: one is under way.
		next   *question
		asking bool
	}
}

type question struct {
	answered chan struct{}
	index    uint64
	err      error
}

func (x *readIndexes) ask(ctx context.Context, s *Store) (uint64, error) {
	x.mu.Lock()
	if x.mu.next == nil {
		x.mu.next = &question{answered: make(chan struct{})}
	}
	q := x.mu.next
	if !x.mu.asking {
		if !s.start(func() { x.run(s) }) {
			x.mu.next = nil
			x.mu.Unlock()
			return 0, ErrClosed
		}
		x.mu.asking = true
	}
	x.mu.Unlock()
	select {
	case <-q.answered:
		return q.index, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run asks until no read waits.
func (x *readIndexes) run(s *Store) {
	for {
		x.mu.Lock()
		q := x.mu.next
		x.mu.next = nil
		if q == nil {
			x.mu.asking = false
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		l, _ := s.Leadership()
		ctx, cancel := context.WithTimeout(s.ctx, indexTimeout)
		if l.Leader == 0 || l.IsLeader {
			q.err = &NotLeaderError{Leader: l.Leader, Term: l.Term}
		} else {
			q.index, q.err = s.config.Peers.Index(ctx, l.Leader)
		}
		cancel()
		close(q.answered)
	}
}

// start runs f on a goroutine that Close waits for; false if the store is closed.
func (s *Store) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.running.Go(f)
	return true
}

// leadershipAfter waits until the leadership has changed, or for a while. ErrClosed says that there
// will be none here any more.
func (s *Store) leadershipAfter(ctx context.Context, d time.Duration) error {
	_, changed := s.Leadership()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return ErrClosed
	case <-changed:
	case <-timer.C:
	}
	return nil
}

// reaching waits for an entry to be applied.
type reaching struct {
	index uint64
	ready chan struct{}
}

// reach waits until an entry is applied here.
func (s *Store) reach(ctx context.Context, index uint64) error {
	if s.index.Load() >= index {
		return nil
	}
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	if s.index.Load() >= index {
		s.mu.Unlock()
		return nil
	}
	w := reaching{index, make(chan struct{})}
	s.mu.reaching = append(s.mu.reaching, w)
	s.mu.Unlock()
	select {
	case <-w.ready:
		if s.index.Load() < index {
			return ErrClosed
		}
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		s.mu.reaching = slices.DeleteFunc(s.mu.reaching,
			func(x reaching) bool { return x.ready == w.ready })
		s.mu.Unlock()
		return fmt.Errorf("waiting for entry %d of %s to be applied here: %w", index, s.config.Name,
			ctx.Err())
	}
}

// reachedLocked takes what waited for an entry up to index.
func (s *Store) reachedLocked(index uint64) (ready []reaching) {
	if len(s.mu.reaching) == 0 {
		return nil
	}
	var still []reaching
	for _, w := range s.mu.reaching {
		if w.index <= index {
			ready = append(ready, w)
		} else {
			still = append(still, w)
		}
	}
	s.mu.reaching = still
	return ready
}

func wakeReaching(ready []reaching) {
	for _, w := range ready {
		close(w.ready)
	}
}

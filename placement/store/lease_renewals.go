package store

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errAnswers says that the leader has not answered what it was asked.
var errAnswers = errors.New("the leader has answered for another number of leases")

// maxRenewed is how many leases one question to the leader is about.
const maxRenewed = 4096

// leaseRenewals asks the leader for all renewals that come at a member meanwhile, one question at a
// time. Callers wait, so what waits here is bounded by what they ask for.
//
// INVARIANT: the question in which a lease is renewed is asked after the renewal began.
type leaseRenewals struct {
	mu struct {
		sync.Mutex
		// next are the questions that are to be asked. asking: one is under way.
		next   []*renewals
		asking bool
	}
}

// renewals are one question.
type renewals struct {
	leases   []int64
	answered chan struct{}
	terms    []time.Duration
	err      error
}

// ask has leases renewed by the leader, and returns their terms, 0 for one that does not exist.
func (x *leaseRenewals) ask(ctx context.Context, s *Store, leases []int64) ([]time.Duration, error) {
	x.mu.Lock()
	if n := len(x.mu.next); n == 0 || len(x.mu.next[n-1].leases)+len(leases) > maxRenewed {
		x.mu.next = append(x.mu.next, &renewals{answered: make(chan struct{})})
	}
	q := x.mu.next[len(x.mu.next)-1]
	at := len(q.leases)
	q.leases = append(q.leases, leases...)
	if !x.mu.asking {
		if !s.start(func() { x.run(s) }) {
			x.mu.next = nil
			x.mu.Unlock()
			return nil, ErrClosed
		}
		x.mu.asking = true
	}
	x.mu.Unlock()
	select {
	case <-q.answered:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if q.err != nil {
		return nil, q.err
	}
	return q.terms[at : at+len(leases)], nil
}

// run asks until no renewal waits.
func (x *leaseRenewals) run(s *Store) {
	for {
		x.mu.Lock()
		if len(x.mu.next) == 0 {
			x.mu.asking = false
			x.mu.Unlock()
			return
		}
		q := x.mu.next[0]
		x.mu.next = x.mu.next[1:]
		x.mu.Unlock()
		l, _ := s.Leadership()
		ctx, cancel := context.WithTimeout(s.ctx, indexTimeout)
		if l.Leader == 0 || l.IsLeader {
			q.err = &NotLeaderError{Leader: l.Leader, Term: l.Term}
		} else {
			q.terms, q.err = s.config.Peers.RenewAll(ctx, l.Leader, q.leases)
		}
		cancel()
		if q.err == nil && len(q.terms) != len(q.leases) {
			q.err = errAnswers
		}
		close(q.answered)
	}
}

package keeper

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
)

var (
	// errAnswers says that the leader has not answered what it was asked.
	errAnswers = errors.New("the leader has answered for another number of leases")
	// errRenewalsWait says that too much waits for the leader.
	errRenewalsWait = errors.New(
		"too many renewals of leases wait for the leader, which does not answer as fast as they come")
)

const (
	// maxRenewed is how many leases one question to the leader is about, unless one call renews more.
	maxRenewed = 4096
	// maxRenewalsWaiting bounds the leases whose renewal waits at a member. A call without leases
	// counts as one.
	maxRenewalsWaiting = 16 * maxRenewed
)

// renewals sends the leader all renewals that come at a member meanwhile, one question at a time. A
// call whose context has ended is not in later questions.
//
// INVARIANT: the question in which a lease is renewed is asked after the renewal began.
type renewals struct {
	keeper *Keeper
	mu     struct {
		sync.Mutex
		// waiting are the calls that are in no question yet, as *renewal, the oldest first; weight
		// is their sum. asking is set while a question is under way.
		waiting list.List
		weight  int
		asking  bool
		closed  bool
	}
}

// renewal is one call. at is its place among those that wait; nil: it is in a question, which sets
// the following fields before answered is closed.
type renewal struct {
	leases   []int64
	at       *list.Element
	answered chan struct{}
	terms    []time.Duration
	err      error
}

func (r *renewal) weight() int { return max(len(r.leases), 1) }

// close ends the wait of all calls. Those in the question that is under way end with it.
func (x *renewals) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.closed = true
}

// ask has leases renewed by the leader, and returns their terms, 0 for one that does not exist.
// errRenewalsWait says that nothing was asked, because too many renewals wait.
func (x *renewals) ask(
	ctx context.Context, leases []int64,
) ([]time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &renewal{leases: leases, answered: make(chan struct{})}
	if err := x.enqueue(r); err != nil {
		return nil, err
	}
	select {
	case <-r.answered:
		return r.terms, r.err
	case <-ctx.Done():
		x.abandon(r)
		return nil, ctx.Err()
	}
}

// enqueue has a call wait for the next question, and sees to it that one is asked.
func (x *renewals) enqueue(r *renewal) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.weight > 0 && x.mu.weight+r.weight() > maxRenewalsWaiting {
		return errRenewalsWait
	}
	if x.mu.closed {
		return command.ErrClosed
	}
	if !x.mu.asking {
		x.mu.asking = true
		x.keeper.running.Go(x.run)
	}
	r.at = x.mu.waiting.PushBack(r)
	x.mu.weight += r.weight()
	return nil
}

// abandon takes a call back that is in no question yet.
func (x *renewals) abandon(r *renewal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.at != nil {
		x.removeLocked(r)
	}
}

func (x *renewals) removeLocked(r *renewal) {
	x.mu.waiting.Remove(r.at)
	x.mu.weight -= r.weight()
	r.at = nil
}

// next takes the calls of the next question, and their leases. Without any, asking is over.
func (x *renewals) next() (calls []*renewal, leases []int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for e := x.mu.waiting.Front(); e != nil; e = x.mu.waiting.Front() {
		r := e.Value.(*renewal)
		if len(calls) > 0 && len(leases)+len(r.leases) > maxRenewed {
			break
		}
		x.removeLocked(r)
		calls, leases = append(calls, r), append(leases, r.leases...)
	}
	x.mu.asking = len(calls) > 0
	return calls, leases
}

// run asks until no renewal waits.
func (x *renewals) run() {
	for {
		calls, leases := x.next()
		if len(calls) == 0 {
			return
		}
		terms, err := x.keeper.askLeader(leases)
		for _, r := range calls {
			if r.err = err; err == nil {
				r.terms, terms = terms[:len(r.leases):len(r.leases)], terms[len(r.leases):]
			}
			close(r.answered)
		}
	}
}

// askLeader asks the leader once. Without an error there is a term for each lease.
func (k *Keeper) askLeader(leases []int64) ([]time.Duration, error) {
	l, _ := k.core.Leadership()
	if l.Leader == 0 || l.IsLeader {
		return nil, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	ctx, cancel := context.WithTimeout(k.ctx, execute.AskTimeout)
	defer cancel()
	terms, err := k.peers.RenewAll(ctx, l.Leader, leases)
	if err == nil && len(terms) != len(leases) {
		err = errAnswers
	}
	return terms, err
}

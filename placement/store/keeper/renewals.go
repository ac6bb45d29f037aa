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
	// errAnswers is the error if the leader's answer has another number of leases than the request.
	errAnswers = errors.New("the leader has answered for another number of leases")
	// errRenewalsWait is the error if too many renewals wait for the leader.
	errRenewalsWait = errors.New(
		"too many renewals of leases wait for the leader, which does not answer as fast as they come")
)

const (
	// maxRenewed bounds the leases in one request to the leader. A single call may exceed it.
	maxRenewed = 4096
	// maxRenewalsWaiting bounds the leases whose renewals wait at a member. A call without leases
	// counts as one.
	maxRenewalsWaiting = 16 * maxRenewed
)

// renewals sends a member's renewals to the leader, one request at a time: renewals that arrive
// meanwhile share the next request. A call whose context has ended is left out of later requests.
//
// INVARIANT: the request that renews a lease is sent after the renewal began.
type renewals struct {
	keeper *Keeper
	mu     struct {
		sync.Mutex
		// waiting are the calls that are in no request yet, as *renewal, the oldest first; weight
		// is the sum of their weights. asking is set while a request is running.
		waiting list.List
		weight  int
		asking  bool
		closed  bool
	}
}

// renewal is one call. at is its element in waiting; nil once it is in a request, which sets the
// following fields before answered is closed.
type renewal struct {
	leases   []int64
	at       *list.Element
	answered chan struct{}
	terms    []time.Duration
	err      error
}

func (r *renewal) weight() int { return max(len(r.leases), 1) }

// close ends the wait of all calls. Calls in the running request end with it.
func (x *renewals) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.closed = true
}

// ask lets the leader renew leases, and returns their terms, 0 for a lease that does not exist.
// errRenewalsWait means that nothing was sent, because too many renewals wait.
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

// enqueue adds a call to the next request, and starts run if no request is running.
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

// abandon removes a call that is in no request yet.
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

// next takes the calls of the next request, and their leases. Without waiting calls it clears
// asking.
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

// run sends requests until no renewal waits.
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

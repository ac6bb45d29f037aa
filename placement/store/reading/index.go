package reading

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Group are the methods of the Raft group that reads need.
type Group interface {
	// ReadIndex calls done(nil) once the local state has everything that was committed anywhere
	// before the call.
	ReadIndex(done func(error))
	// Lease returns ok if this replica leads at the returned term, and no other replica can lead
	// now.
	Lease() (term uint64, ok bool)
	// Committed returns the index up to which this replica knows the log to be committed, at least
	// its applied index. No other member knows an index as committed before the leader does.
	Committed() uint64
}

// Peers sends requests to the leading member.
type Peers interface {
	// Index asks the leader for an index: its Index.ServeIndex. A NotLeaderError means that the
	// member does not lead.
	Index(ctx context.Context, leader keys.ReplicaID) (uint64, error)
}

// Leader provides the leadership; execute.Executor implements it.
type Leader interface {
	Leadership() (execute.Leadership, <-chan struct{})
	AwaitLeadership(ctx context.Context, d time.Duration) error
}

// Index is a member's applied index, with the readers that wait for it to advance. Its methods may
// be called from any goroutine.
type Index struct {
	name    string
	leader  Leader
	peers   Peers // nil: only the leader serves current reads
	applied atomic.Uint64
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		group  Group
		closed bool
		// waiting are the calls of Reach.
		waiting []waiter
		// next is the request that arriving reads join; nil if there is none. asking is set while a
		// request is running.
		next   *question
		asking bool
	}
}

// waiter is a call that waits for an entry to be applied.
type waiter struct {
	index uint64
	ready chan struct{}
}

type question struct {
	answered chan struct{}
	index    uint64
	err      error
}

// New returns an Index of a store; the store's name appears in errors. The caller stops the Index.
func New(name string, leader Leader, peers Peers) *Index {
	x := &Index{name: name, leader: leader, peers: peers}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// SetGroup sets the Raft group, once, before the Index is used.
func (x *Index) SetGroup(g Group) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.group = g
}

// Stop ends all calls, and waits for the goroutine.
func (x *Index) Stop() {
	x.mu.Lock()
	x.mu.closed = true
	waiting := x.mu.waiting
	x.mu.waiting = nil
	x.mu.Unlock()
	for _, w := range waiting {
		close(w.ready)
	}
	x.cancel()
	x.running.Wait()
}

// AppliedIndex is the index of the last entry that this member has applied.
func (x *Index) AppliedIndex() uint64 { return x.applied.Load() }

// Advance records that the entries up to an index are applied and can be read. The caller then
// calls Wake.
func (x *Index) Advance(index uint64) { x.applied.Store(index) }

// Wake ends the calls of Reach whose entries are applied.
func (x *Index) Wake() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.mu.waiting) == 0 {
		return
	}
	applied := x.applied.Load()
	x.mu.waiting = slices.DeleteFunc(x.mu.waiting, func(w waiter) bool {
		if w.index <= applied {
			close(w.ready)
		}
		return w.index <= applied
	})
}

// Reach waits until an entry is applied here.
func (x *Index) Reach(ctx context.Context, index uint64) error {
	if x.applied.Load() >= index {
		return nil
	}
	x.mu.Lock()
	if x.mu.closed {
		x.mu.Unlock()
		return command.ErrClosed
	}
	if x.applied.Load() >= index {
		x.mu.Unlock()
		return nil
	}
	w := waiter{index, make(chan struct{})}
	x.mu.waiting = append(x.mu.waiting, w)
	x.mu.Unlock()
	select {
	case <-w.ready:
		if x.applied.Load() < index {
			return command.ErrClosed
		}
		return nil
	case <-ctx.Done():
		x.mu.Lock()
		x.mu.waiting = slices.DeleteFunc(x.mu.waiting,
			func(other waiter) bool { return other.ready == w.ready })
		x.mu.Unlock()
		return fmt.Errorf("waiting for entry %d of %s to be applied here: %w", index, x.name, ctx.Err())
	}
}

// Confirm returns when this member has applied all that any member acknowledged before the call: at
// once on a leader that holds its lease, after a round trip otherwise.
func (x *Index) Confirm(ctx context.Context) error {
	for {
		index, err := x.Committed(ctx)
		switch {
		case err == nil:
			return x.Reach(ctx, index)
		case x.peers == nil || errors.Is(err, command.ErrClosed):
			return err
		}
		// The leader is gone, or no leader is known yet.
		if waitErr := x.leader.AwaitLeadership(ctx, execute.LookAgain); waitErr != nil {
			return fmt.Errorf("%s cannot show that it is up to date: %w: %w", x.name, waitErr, err)
		}
	}
}

// Committed returns an index up to which the log was committed during the call, at least as high as
// any index on which a member acted before the call; 0 if this member has applied that index.
func (x *Index) Committed(ctx context.Context) (uint64, error) {
	x.mu.Lock()
	handle, closed := x.mu.group, x.mu.closed
	x.mu.Unlock()
	l, _ := x.leader.Leadership()
	switch {
	case closed:
		return 0, command.ErrClosed
	case handle == nil:
		return 0, &command.NotLeaderError{}
	case !l.IsLeader && x.peers != nil:
		if l.Leader == 0 {
			return 0, &command.NotLeaderError{}
		}
		return x.ask(ctx)
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
		return 0, nil // already applied
	case <-ctx.Done():
		return 0, fmt.Errorf("the core cannot show that it is up to date: %w", ctx.Err())
	}
}

// ServeIndex is the leader's side of Peers.Index: it returns the index that a member must have
// applied to serve a read now.
func (x *Index) ServeIndex(ctx context.Context) (uint64, error) {
	if l, _ := x.leader.Leadership(); !l.IsLeader {
		return 0, &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
	}
	index, err := x.Committed(ctx)
	if err != nil {
		return 0, err
	}
	return max(index, x.applied.Load()), nil
}

// ask joins the next request to the leader, and returns its answer.
func (x *Index) ask(ctx context.Context) (uint64, error) {
	x.mu.Lock()
	if x.mu.closed {
		x.mu.Unlock()
		return 0, command.ErrClosed
	}
	if x.mu.next == nil {
		x.mu.next = &question{answered: make(chan struct{})}
	}
	q := x.mu.next
	if !x.mu.asking {
		x.mu.asking = true
		x.running.Go(x.run)
	}
	x.mu.Unlock()
	select {
	case <-q.answered:
		return q.index, q.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// run sends requests until no read waits.
func (x *Index) run() {
	for {
		x.mu.Lock()
		q := x.mu.next
		x.mu.next = nil
		x.mu.asking = q != nil
		x.mu.Unlock()
		if q == nil {
			return
		}
		l, _ := x.leader.Leadership()
		ctx, cancel := context.WithTimeout(x.ctx, execute.AskTimeout)
		if l.Leader == 0 || l.IsLeader {
			q.err = &command.NotLeaderError{Leader: l.Leader, Term: l.Term}
		} else {
			q.index, q.err = x.peers.Index(ctx, l.Leader)
		}
		cancel()
		close(q.answered)
	}
}

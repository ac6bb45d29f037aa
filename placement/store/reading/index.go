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

// Group is the Raft group as reads need it.
type Group interface {
	// ReadIndex calls done(nil) once the local state has everything that was committed anywhere
	// before the call.
	ReadIndex(done func(error))
	// Lease says whether this replica leads, at which term, and that no other can lead at this
	// moment.
	Lease() (term uint64, ok bool)
	// Committed returns the index up to which this replica knows the log to be committed, at least
	// its applied index. A leader knows it before any other member does.
	Committed() uint64
}

// Peers reaches the member that leads.
type Peers interface {
	// Index asks the leader for an index: its Index.ServeIndex. A NotLeaderError says that the member
	// does not lead.
	Index(ctx context.Context, leader keys.ReplicaID) (uint64, error)
}

// Leader says who leads; execute.Executor is one.
type Leader interface {
	Leadership() (execute.Leadership, <-chan struct{})
	AwaitLeadership(ctx context.Context, d time.Duration) error
}

// Index is a member's applied index, with the readers that wait for it. Its methods may be called
// from any goroutine.
type Index struct {
	name    string
	leader  Leader
	peers   Peers // nil: only the leader reads
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
		// next is the question that reads join; nil: there is none. asking is set while one is
		// under way.
		next   *question
		asking bool
	}
}

// waiter waits for an entry to be applied.
type waiter struct {
	index uint64
	ready chan struct{}
}

type question struct {
	answered chan struct{}
	index    uint64
	err      error
}

// New returns an Index of a store with that name, which errors have. The caller stops it.
func New(name string, leader Leader, peers Peers) *Index {
	x := &Index{name: name, leader: leader, peers: peers}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// SetGroup gives the Raft group, once, before anything is expected of it.
func (x *Index) SetGroup(g Group) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.group = g
}

// Stop ends all calls, and waits for what runs.
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

// AppliedIndex is that of the last entry of the log that this member has applied.
func (x *Index) AppliedIndex() uint64 { return x.applied.Load() }

// Advance says that the entries up to an index are applied and can be read. Wake follows.
func (x *Index) Advance(index uint64) { x.applied.Store(index) }

// Wake ends the calls of Reach that wait for what is applied.
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

// Confirm returns when this member has applied everything that was acknowledged anywhere before the
// call: at once on a leader that holds its lease, after a round trip otherwise.
func (x *Index) Confirm(ctx context.Context) error {
	for {
		index, err := x.Committed(ctx)
		switch {
		case err == nil:
			return x.Reach(ctx, index)
		case x.peers == nil || errors.Is(err, command.ErrClosed):
			return err
		}
		// The leader is gone, or there is none yet.
		if waitErr := x.leader.AwaitLeadership(ctx, execute.LookAgain); waitErr != nil {
			return fmt.Errorf("%s cannot show that it is up to date: %w: %w", x.name, waitErr, err)
		}
	}
}

// Committed returns an index up to which the log was committed at some moment of the call, as far
// as any member could have acted on it.
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
		return 0, nil // it is applied
	case <-ctx.Done():
		return 0, fmt.Errorf("the core cannot show that it is up to date: %w", ctx.Err())
	}
}

// ServeIndex is the leader's side of Peers.Index: what a member has to have applied that answers a
// read now.
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

// ask has the next question to the leader answer the call.
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

// run asks until no read waits.
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

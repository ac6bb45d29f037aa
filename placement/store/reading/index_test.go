package reading

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// follower knows a leader that has committed all up to committed.
type follower struct {
	Group
	committed atomic.Uint64
	asked     atomic.Int64
	hold      chan struct{} // what the leader waits for before it answers
}

func (*follower) Leadership() (execute.Leadership, <-chan struct{}) {
	return execute.Leadership{Term: 1, Leader: 2}, nil
}

func (*follower) AwaitLeadership(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (f *follower) Index(ctx context.Context, _ keys.ReplicaID) (uint64, error) {
	f.asked.Add(1)
	index := f.committed.Load()
	select {
	case <-f.hold:
		return index, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func following(t *testing.T) (*Index, *follower) {
	f := &follower{hold: make(chan struct{})}
	x := New("a store", f, f)
	x.SetGroup(f)
	t.Cleanup(x.Stop)
	return x, f
}

// Reads that come while a question is under way share the next one: the answer to the first may
// lack what was committed before they came.
func TestQuestionsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, f := following(t)
		f.committed.Store(1)
		first, later := make(chan error, 1), make(chan error, 10)
		go func() { first <- x.Confirm(t.Context()) }()
		synctest.Wait()
		f.committed.Store(2)
		for range cap(later) {
			go func() { later <- x.Confirm(t.Context()) }()
		}
		synctest.Wait()
		x.Advance(1)
		x.Wake()
		close(f.hold)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(later) > 0 || f.asked.Load() != 2 {
			t.Errorf("%d reads miss an entry, %d questions", len(later), f.asked.Load())
		}
		x.Advance(2)
		x.Wake()
		for range cap(later) {
			if err := <-later; err != nil {
				t.Error(err)
			}
		}
	})
}

// Reads that were given up leave nothing behind, and the end of the member ends the others.
func TestAbandonedReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, f := following(t)
		f.committed.Store(5)
		close(f.hold)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := x.Confirm(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a member that lags answers: %v", err)
		}
		x.mu.Lock()
		if n := len(x.mu.waiting); n > 0 {
			t.Errorf("%d reads are kept", n)
		}
		x.mu.Unlock()
		done := make(chan error, 1)
		go func() { done <- x.Confirm(t.Context()) }()
		synctest.Wait()
		x.Stop()
		if err := <-done; !errors.Is(err, command.ErrClosed) {
			t.Error(err)
		}
		if err := x.Confirm(t.Context()); !errors.Is(err, command.ErrClosed) {
			t.Error(err)
		}
	})
}

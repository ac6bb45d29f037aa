package keeper

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// member is a Core that does not lead, and the leader that its Keeper asks, which has a lease of
// the id 1 and gives no answer while it hangs. It notes for which leases it was asked.
type member struct {
	Core
	mu    sync.Mutex
	hangs bool
	asked [][]int64
}

func (*member) Importing() error { return nil }

func (*member) Leadership() (execute.Leadership, <-chan struct{}) {
	return execute.Leadership{Term: 1, Leader: 2}, nil
}

func (*member) AwaitLeadership(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (m *member) TimeToLive(context.Context, keys.ReplicaID, int64) (time.Duration, error) {
	return 0, command.ErrLeaseNotFound
}

func (m *member) RenewAll(
	ctx context.Context, _ keys.ReplicaID, leases []int64,
) ([]time.Duration, error) {
	m.mu.Lock()
	hangs := m.hangs
	m.asked = append(m.asked, slices.Clone(leases))
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	terms := make([]time.Duration, len(leases))
	for i, id := range leases {
		if id == 1 {
			terms[i] = time.Minute
		}
	}
	return terms, nil
}

func (m *member) set(hangs bool) (asked [][]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hangs, asked, m.asked = hangs, m.asked, nil
	return asked
}

// hung is the Keeper of a member whose leader hangs.
func hung(t *testing.T) (*Keeper, *member) {
	m := &member{hangs: true}
	k := New(Config{Lessor: lease.New(hlc.SystemMonotonic(), time.Minute), Core: m, Peers: m,
		Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(k.Stop)
	return k, m
}

// A renewal whose caller has given up is not asked for, and does not delay those that come later.
func TestAbandonedRenewalsAreNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, h := hung(t)
		ctx, cancel := context.WithTimeout(t.Context(), execute.AskTimeout/2)
		defer cancel()
		var callers sync.WaitGroup
		ask := func(id int64) {
			callers.Go(func() {
				if _, err := k.Renew(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("lease %d: %v", id, err)
				}
			})
		}
		ask(1)
		synctest.Wait()
		for id := range int64(3 * maxRenewed) {
			ask(id + 2)
		}
		callers.Wait()
		if asked := h.set(false); len(asked) != 1 || !slices.Equal(asked[0], []int64{1}) {
			t.Fatalf("%d questions, the first about %v", len(asked), asked[0])
		}
		began := time.Now()
		if term, err := k.Renew(t.Context(), 1); err != nil || term != time.Minute {
			t.Fatalf("%s, %v", term, err)
		}
		// What hangs ends first.
		if took := time.Since(began); took > execute.AskTimeout {
			t.Errorf("took %s", took)
		}
		if asked := h.set(false); len(asked) != 1 || !slices.Equal(asked[0], []int64{1}) {
			t.Errorf("asked %d times, about %d leases at first", len(asked), len(asked[0]))
		}
	})
}

// What waits for a leader that does not answer has a bound. Callers beyond it wait, and all are
// served when it answers again.
func TestWaitingRenewalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, h := hung(t)
		waiting := func() int {
			k.renewals.mu.Lock()
			defer k.renewals.mu.Unlock()
			return k.renewals.mu.weight
		}
		const each = maxRenewed / 2
		var callers sync.WaitGroup
		call := func() {
			callers.Go(func() {
				terms, err := k.RenewAll(t.Context(), slices.Repeat([]int64{1}, each))
				if err != nil || len(terms) != each || slices.Contains(terms, 0) {
					t.Errorf("%d terms, %v", len(terms), err)
				}
			})
		}
		// One question is under way: nothing is taken from what waits meanwhile.
		call()
		synctest.Wait()
		for range maxRenewalsWaiting/each + 5 {
			call()
		}
		synctest.Wait()
		if n := waiting(); n > maxRenewalsWaiting || n <= maxRenewalsWaiting-each {
			t.Errorf("%d leases wait, the bound is %d", n, maxRenewalsWaiting)
		}
		if _, err := k.renewals.ask(t.Context(), make([]int64, each)); !errors.Is(err,
			errRenewalsWait) {
			t.Error(err)
		}
		h.set(false)
		callers.Wait()
		if n := waiting(); n != 0 {
			t.Errorf("%d leases are left", n)
		}
		for _, asked := range h.set(false) {
			if len(asked) > maxRenewed {
				t.Errorf("a question about %d leases", len(asked))
			}
		}
	})
}

// leader is a Core that leads alone, and applies at once what is proposed. left is what the log
// says of the lease 7.
type leader struct {
	Core
	lessor *lease.Lessor
	left   uint64
}

func (*leader) Importing() error                          { return nil }
func (*leader) Confirm(context.Context) error             { return nil }
func (*leader) Committed(context.Context) (uint64, error) { return 0, nil }

func (*leader) Leadership() (execute.Leadership, <-chan struct{}) {
	return execute.Leadership{Term: 1, Leader: 1, IsLeader: true, Serving: true}, nil
}

func (l *leader) DoOwn(_ context.Context, c *storepb.Command) (*storepb.Result, error) {
	for _, note := range c.GetLeaseCheckpoint().GetLeases() {
		l.left = note.LeftMillis
		l.lessor.Changed([]lease.Change{{ID: note.Id, TTLMillis: term, LeftMillis: note.LeftMillis,
			Checkpoint: true}}, nil)
	}
	return &storepb.Result{}, nil
}

func (l *leader) ProposeAside(_ uint64, all ...*storepb.Command) (bool, error) {
	for _, c := range all {
		_, _ = l.DoOwn(context.Background(), c)
	}
	return true, nil
}

const term = 10 * 60_000

// A note of what a lease has left that comes behind its renewal is put right.
func TestNoteBehindARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Int64
		now.Store(1e12)
		l := &leader{lessor: lease.New(now.Load, 5*time.Minute)}
		k := New(Config{Lessor: l.lessor, Core: l, Logger: slog.New(slog.DiscardHandler)})
		defer k.Stop()
		l.lessor.Changed([]lease.Change{{ID: 7, TTLMillis: term}}, nil)
		k.noting.Lock() // the keeper notes nothing meanwhile
		l.lessor.Activate(true)
		var notes []*storepb.LeaseCheckpoint_Lease
		for passed := time.Duration(0); len(notes) == 0 && passed < 6*time.Minute; passed += time.Second {
			now.Add(int64(time.Second))
			notes = l.lessor.Due().Notes
		}
		k.noting.Unlock()
		if len(notes) != 1 {
			t.Fatalf("notes: %v", notes)
		}
		if _, err := k.KeepAlive(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		k.propose(1, checkpoint(notes...))
		k.keepOnce()
		if l.left != 0 && l.left < 9*60_000 {
			t.Errorf("the next leader would give it %d ms", l.left)
		}
	})
}

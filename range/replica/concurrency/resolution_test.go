package concurrency

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// calledOwner notes when its resolutions are to go on.
type calledOwner struct {
	m      *Manager
	at     time.Time
	called int
}

func (o *calledOwner) ReevaluateWaiters() {}

func (o *calledOwner) ContinueResolution(x *Resolution) {
	if o.m.Resolutions.EndPause(x) {
		o.at, o.called = time.Now(), o.called+1
	}
}

// newResolving is a manager with transactions that are committed, and have as many locks each.
func newResolving(transactions, locks int) (*Manager, *calledOwner) {
	metrics, _ := NewMetrics()
	c := &Config{Metrics: metrics, Logger: slog.New(slog.DiscardHandler), Load: admission.NewLoad(time.Now()),
		Limits: Limits{MaxLocks: 1 << 20, MaxWaiters: 10, MaxWaiterBytes: 1000}}
	c.Prepare()
	m := &Manager{}
	o := &calledOwner{m: m}
	m.Init(c, o, 1, 7)
	var found []Change
	for i := range transactions {
		of := txn.Info{ID: txn.ID{byte(i + 1)}, Begun: hlc.Timestamp{Wall: 1}}
		for j := range locks {
			found = append(found, Change{Key: fmt.Sprintf("k%d.%06d", i, j), Of: of,
				State: State{Kind: kvpb.Mutation_PUT, Prepared: hlc.Timestamp{Wall: 1}, Size: 10}})
		}
	}
	m.Reset(found)
	committed := &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
		Timestamp: wire.ToTimestamp(hlc.Timestamp{Wall: 5})}
	for i := range transactions {
		m.Pushes.Learn(numbered(m, i+1), committed, 0)
	}
	return m, o
}

// numbered is one of the transactions.
func numbered(m *Manager, i int) *Transaction {
	return m.Transaction(&txn.Info{ID: txn.ID{byte(i)}})
}

// TestResolutionsMakeWay: how much an entry of a resolution releases, and for how long it pauses
// afterwards, by what waits for the transaction and what is asked of the node.
func TestResolutionsMakeWay(t *testing.T) {
	waits := func(w Waiter) *Waiter {
		w.History = &History{}
		return &w
	}
	for name, x := range map[string]struct {
		locks  int
		loaded bool
		waiter *Waiter
		bytes  int
		times  int
	}{
		"nothing waits": {locks: LargeLocks, bytes: UnhurriedBytes, times: 2},
		"nothing waits, the node is loaded": {locks: LargeLocks, loaded: true,
			bytes: loadedBytes, times: 8},
		"a small transaction": {locks: 10, loaded: true, bytes: UnhurriedBytes},
		"a write waits":       {LargeLocks, true, waits(Waiter{}), urgentBytes, 0},
		"a large transaction waits": {LargeLocks, true,
			waits(Waiter{Kind: Acquire, LowPriority: true}), loadedBytes, 2},
		"a request that releases it waits": {LargeLocks, true, waits(Waiter{Kind: Resolve}),
			loadedBytes, 8},
		"a large transaction waits, no load": {LargeLocks, false, waits(Waiter{LowPriority: true}),
			UnhurriedBytes, 2},
		"a request that ends it waits, no load": {LargeLocks, false, waits(Waiter{Kind: Resolve}),
			UnhurriedBytes, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, o := newResolving(1, x.locks)
				if x.loaded {
					m.config.Load.Note(time.Now())
				}
				if x.waiter != nil {
					l := m.Get("k0.000001")
					m.Writes.Wait(x.waiter, l, l.Key, UntilGone, time.Now())
				}
				r := m.Resolutions.Start(numbered(m, 1))
				if r == nil || m.Resolutions.Start(numbered(m, 1)) != nil {
					t.Fatal("one resolution begins, and no other")
				}
				asked := time.Now()
				outcome, bytes := m.Resolutions.NextEntry(r, asked)
				if outcome.GetState() != kvpb.TransactionState_COMMITTED || bytes != x.bytes {
					t.Errorf("%d bytes, want %d; %v", bytes, x.bytes, outcome)
				}
				time.Sleep(3 * time.Millisecond)
				applied := time.Now()
				if due := m.Resolutions.EntryDone(r, true, asked, applied); due != (x.times == 0) {
					t.Errorf("the next entry is due: %t", due)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				pause := time.Duration(x.times) * 3 * time.Millisecond
				if x.times > 0 && (o.called != 1 || o.at.Sub(applied) != pause) {
					t.Errorf("paused for %s, want %s", o.at.Sub(applied), pause)
				}
				if m.Resolutions.EntryDone(r, false, asked, applied) || m.Resolutions.Resolving(r.Transaction()) ||
					m.config.Paced.Len() > 0 {
					t.Error("it is not over")
				}
			})
		})
	}
}

// TestAWriteEndsThePause: what comes to wait has the next entry begin at once.
func TestAWriteEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, o := newResolving(1, LargeLocks)
		r := m.Resolutions.Start(numbered(m, 1))
		now := time.Now()
		if m.Resolutions.EntryDone(r, true, now.Add(-time.Second), now) ||
			m.Resolutions.Start(numbered(m, 1)) != nil {
			t.Fatal("it does not pause")
		}
		l := m.Get("k0.000001")
		m.Writes.Wait(&Waiter{History: &History{}}, l, l.Key, UntilGone, now)
		if m.Resolutions.Start(numbered(m, 1)) != r {
			t.Error("it pauses, although a write waits")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if o.called != 0 {
			t.Error("the pause ends twice")
		}
	})
}

// TestFewTransactionsPause: the locks of many large transactions do not pile up.
func TestFewTransactionsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newResolving(maxPaced+1, LargeLocks)
		now := time.Now()
		pause := 0
		for i := range maxPaced + 1 {
			r := m.Resolutions.Start(numbered(m, i+1))
			if !m.Resolutions.EntryDone(r, true, now.Add(-time.Millisecond), now) {
				pause++
			}
		}
		if pause != maxPaced {
			t.Errorf("%d transactions pause", pause)
		}
		m.GiveUp()
		if m.config.Paced.Len() != 0 {
			t.Error("a leadership epoch has ended, and its resolutions have not")
		}
		time.Sleep(time.Second)
		synctest.Wait()
	})
}

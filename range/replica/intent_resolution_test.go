package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestResolutionsPause: the locks of a large transaction that nothing waits for become versions at
// leisure, the more so if the node is loaded, and those that a request waits for without delay.
// Either way the answer to a Resolve comes when none is left.
func TestResolutionsPause(t *testing.T) {
	for name, x := range map[string]struct{ wanted, loaded, write bool }{
		"nothing waits": {}, "nothing waits, the node is loaded": {loaded: true},
		"a read waits":        {wanted: true, loaded: true},
		"a large write waits": {wanted: true, loaded: true, write: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { resolutionsPause(t, x.wanted, x.loaded, x.write) })
		})
	}
}

func resolutionsPause(t *testing.T, wanted, loaded, write bool) {
	const n = 5000
	l := newManyLocks(t, n)
	defer l.c.close()
	l.c.physical.Advance(time.Second)
	l.m.node.Hooks.LockTime, l.m.node.Hooks.Evaluate = nil, func() { time.Sleep(time.Millisecond) }
	before, began, expected := len(l.c.log), time.Now(), 1
	if wanted {
		expected++
		q := &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k000007")}}}
		if write {
			q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("k002500"),
				Value: make([]byte, 100<<10)}}
		}
		l.send(q)
	}
	l.send(&kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
		Resolutions: []*kvpb.Resolution{{
			Transaction: l.of.Id, Status: &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
				Timestamp: wire.ToTimestamp(hlc.Timestamp{Wall: epoch + int64(1200*time.Millisecond)})}}}}}})
	var answers []*kvpb.Response
	others := []*kvpb.Request{{Command: &kvpb.Request_Get{
		Get: &kvpb.GetRequest{Key: []byte("other")}}}}
	for range 10_000 {
		if loaded {
			l.m.node.Asked(others, time.Now())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if answers = append(answers, l.inbox.take()...); len(answers) == expected {
			break
		}
	}
	if len(answers) != expected {
		t.Fatalf("%d answers", len(answers))
	}
	for _, a := range answers {
		if a.Error != nil {
			t.Fatal(a.Error)
		}
		if a.GetResolve() != nil && l.m.replica.Locked() {
			t.Error("the answer came before the last lock was gone")
		}
		if g := a.GetGet(); g != nil && string(g.Value) != "v" {
			t.Errorf("the read found %v", g)
		}
	}
	entries, took, times := len(l.c.log)-before, time.Since(began), admission.Resolution.Idle
	if loaded {
		times = admission.Resolution.Busy
	}
	switch paused := l.m.node.locking.Pacer.Paused() > 0; {
	case wanted && paused:
		t.Error("it paused, though a read was waiting")
	case wanted && entries > n/eval.LocksPerEntry+2:
		t.Errorf("%d entries", entries)
	case !wanted && (!paused || took < time.Duration((entries-2)*times)*time.Millisecond):
		t.Errorf("%d entries came in %s", entries, took)
	}
}

// TestResolutionsKeepUp: where the node is loaded, locks of transactions that are not large, and of
// many large ones, do not pile up because their resolutions pause.
func TestResolutionsKeepUp(t *testing.T) {
	for name, x := range map[string]struct{ locks, size, every, transactions, most int }{
		"middling transactions": {locks: 128, size: 1024, every: 25, transactions: 100, most: 10 * 128},
		"large transactions": {locks: 2 * concurrency.LargeLocks, size: 32, every: 200,
			transactions: 25, most: 8 * concurrency.LargeLocks},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t,
				func(t *testing.T) {
					resolutionsKeepUp(t, x.locks, x.size, x.every, x.transactions, x.most)
				})
		})
	}
}

// resolutionsKeepUp has a transaction acquire some locks and be decided every so many milliseconds.
// There must not be more than most locks in the end.
func resolutionsKeepUp(t *testing.T, locks, size, every, transactions, most int) {
	l := newManyLocks(t, 0)
	defer l.c.close()
	l.c.physical.Advance(time.Second)
	l.m.node.Hooks.LockTime, l.m.node.Hooks.Evaluate = nil, func() {
		time.Sleep(3 * time.Millisecond)
	}
	others := []*kvpb.Request{{Command: &kvpb.Request_Get{
		Get: &kvpb.GetRequest{Key: []byte("other")}}}}
	began := &kvpb.Timestamp{Wall: uint64(epoch)}
	type acquiring struct {
		id   []byte
		left int
	}
	acquired := make(map[uint64]*acquiring) // by request
	answered := 0
	for now := 0; now < transactions*every; now += 5 {
		l.m.node.Asked(others, time.Now())
		if now%every == 0 {
			of := &kvpb.Transaction{Id: transactionID(fmt.Sprint(now)), Keyspace: 7, Anchor: []byte("a"),
				Begun: began, Started: began}
			x := &acquiring{id: of.Id}
			for i := 0; i < locks; i += 128 {
				p := &kvpb.PrepareRequest{Transaction: of}
				for j := i; j < min(i+128, locks); j++ {
					p.Mutations = append(p.Mutations,
						&kvpb.Mutation{Key: fmt.Appendf(nil, "k%06d-%05d", now, j), Value: make([]byte, size)})
				}
				l.send(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: p}})
				acquired[l.id] = x
				x.left++
			}
		}
		time.Sleep(5 * time.Millisecond)
		l.c.physical.Advance(5 * time.Millisecond)
		for _, a := range l.inbox.take() {
			switch x := acquired[a.Id]; {
			case a.Error != nil:
				t.Fatal(a.Error)
			case x == nil:
				answered++
			default:
				if x.left--; x.left == 0 {
					l.send(&kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
						Background: true, Resolutions: []*kvpb.Resolution{{
							Transaction: x.id,
							Status: &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
								Timestamp: a.GetPrepare().Prepared}}}}}})
				}
			}
		}
	}
	l.m.replica.m.Mu.Lock()
	left := l.m.replica.m.Mu.Locks.Len()
	l.m.replica.m.Mu.Unlock()
	if left > most {
		t.Errorf("there are %d locks", left)
	}
	if answered < transactions*3/4 {
		t.Errorf("%d of %d Resolves are answered", answered, transactions)
	}
	// What rests gives its turn back in the end, or when the leadership ends.
	for range 10_000 {
		if time.Sleep(50 * time.Millisecond); !l.m.replica.Locked() {
			break
		}
	}
	synctest.Wait()
	if n := l.m.node.locking.Paced.Len(); l.m.replica.Locked() || n > 0 {
		t.Errorf("locked: %t; %d transactions pause", l.m.replica.Locked(), n)
	}
}

// TestEndsOfLargeLocksShareNoEntry: a request for the end of locks is small, and the values are
// not: many that come together do not make an entry that is larger than others, but for one value.
func TestEndsOfLargeLocksShareNoEntry(t *testing.T) {
	for name, background := range map[string]bool{"waiting": false, "in the background": true} {
		t.Run(name, func(t *testing.T) {
			l := newManyLocks(t, 0)
			defer l.c.close()
			began := &kvpb.Timestamp{Wall: uint64(epoch)}
			const transactions, locks, size = 8, 3, 700 << 10
			id := func(i int) []byte { return transactionID(fmt.Sprint("T", i)) }
			for i := range transactions {
				of := &kvpb.Transaction{Id: id(i), Keyspace: 7, Anchor: []byte("a"), Begun: began,
					Started: began}
				for j := range locks {
					l.submit(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
						Transaction: of,
						Mutations: []*kvpb.Mutation{{Key: fmt.Appendf(nil, "k%02d.%d", i, j),
							Value: make([]byte, size)}}}}})
				}
			}
			for _, a := range l.answers() {
				if a.Error != nil {
					t.Fatal(a.Error)
				}
			}
			l.c.physical.Advance(time.Second)
			before := len(l.c.log)
			var pending []config.Pending
			for i := range transactions {
				l.id++
				pending = append(pending,
					config.Pending{Client: 1, Arrived: time.Now(), Reply: l.inbox.reply, Request: &kvpb.Request{
						Id: l.id, Partition: 100, Generation: 1, Term: l.c.term, Sequence: l.id,
						Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{Background: background,
							Resolutions: []*kvpb.Resolution{{
								Transaction: id(i),
								Status: &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
									Timestamp: wire.ToTimestamp(hlc.Timestamp{
										Wall: epoch + int64(1500*time.Millisecond)})}}}}}}})
			}
			l.m.replica.Submit(pending)
			l.c.settle()
			if n := len(l.answers()); n != transactions || l.m.replica.Locked() {
				t.Errorf("%d answers, and there are locks: %t", n, l.m.replica.Locked())
			}
			for _, e := range l.c.log[before:] {
				if n := len(e.Data); n > l.m.node.MaxEntryBytes+size {
					t.Errorf("an entry of %d bytes", n)
				}
			}
		})
	}
}

package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// TestResolveOfAnotherAnchor: a decision ends no lock of a transaction that has the same id and
// names another anchor, and nothing is learnt from it; that of a program which names no anchor
// does.
func TestResolveOfAnotherAnchor(t *testing.T) {
	for name, x := range map[string]struct {
		keyspace uint32
		anchor   string
		ended    bool
	}{
		"another keyspace": {8, "a", false},
		"another key":      {7, "b", false},
		"no key":           {7, "", false},
		"its own":          {7, "a", true},
		"an old program":   {0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resolveOfAnotherAnchor(t, x.keyspace, x.anchor, x.ended)
			})
		})
	}
}

func resolveOfAnotherAnchor(t *testing.T, keyspace uint32, anchor string, ended bool) {
	l := newManyLocks(t, 1000)
	defer l.c.close()
	l.c.physical.Advance(time.Second)
	// Below what the locks are prepared at, it would have them go without a trace.
	for _, commit := range []time.Duration{time.Nanosecond, 1200 * time.Millisecond} {
		if ended {
			commit = 1200 * time.Millisecond
		}
		l.submit(&kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
			Resolutions: []*kvpb.Resolution{{Transaction: l.of.Id, Keyspace: keyspace,
				Anchor: []byte(anchor), Status: &kvpb.TransactionStatus{
					State:     kvpb.TransactionState_COMMITTED,
					Timestamp: wire.ToTimestamp(hlc.Timestamp{Wall: epoch + int64(commit)})}}}}}})
		answers := l.answers()
		if len(answers) != 1 || answers[0].Error != nil ||
			answers[0].GetResolve().Resolved > 0 != ended {
			t.Fatalf("%v", answers)
		}
		if ended {
			if l.m.replica.Locked() {
				t.Error("locks are left")
			}
			return
		}
	}
	l.m.replica.m.Mu.Lock()
	defer l.m.replica.m.Mu.Unlock()
	x := l.transactionLocked()
	if x == nil || x.Locks() != 1000 || x.Known.State != kvpb.TransactionState_PENDING {
		t.Errorf("left: %+v", x)
	}
}

// TestIDWithAnotherAnchor: where a transaction has locks, no other one gets any under its id.
func TestIDWithAnotherAnchor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newManyLocks(t, 1000)
		defer l.c.close()
		l.c.physical.Advance(time.Second)
		began := wire.ToTimestamp(hlc.Timestamp{Wall: epoch})
		mutations := []*kvpb.Mutation{{Key: []byte("k000001"), Value: []byte("other")}}
		for name, q := range map[string]*kvpb.PrepareRequest{
			"prepare":   {Mutations: mutations},
			"one phase": {Mutations: mutations, OnePhase: &kvpb.OnePhase{}},
			"span": {Volatile: true, ReturnValues: true,
				HoldSpans: []*kvpb.KeySpan{{Start: []byte("k"), End: []byte("l")}}},
		} {
			q.Transaction = &kvpb.Transaction{Id: l.of.Id, Keyspace: 7, Anchor: []byte("b"),
				Begun: began, Started: began}
			l.submit(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: q}})
			answers := l.answers()
			if len(answers) != 1 ||
				answers[0].Error.GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT {
				t.Errorf("%s: %v", name, answers)
			}
		}
	})
}

// TestLocksNeedAKeyspace: a transaction that names no keyspace gets no locks, of whatever kind: a
// decision about it would be one about any transaction with its id.
func TestLocksNeedAKeyspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newManyLocks(t, 10)
		defer l.c.close()
		l.c.physical.Advance(time.Second)
		began := wire.ToTimestamp(hlc.Timestamp{Wall: epoch})
		for name, q := range map[string]*kvpb.PrepareRequest{
			"prepare":   {Mutations: []*kvpb.Mutation{{}}},
			"lock":      {Mutations: []*kvpb.Mutation{{Kind: kvpb.Mutation_LOCK}}},
			"one phase": {Mutations: []*kvpb.Mutation{{}}, OnePhase: &kvpb.OnePhase{}},
			"volatile": {Volatile: true, ReturnValues: true,
				Mutations: []*kvpb.Mutation{{Kind: kvpb.Mutation_LOCK}}},
			"span": {Volatile: true, ReturnValues: true, HoldSpans: []*kvpb.KeySpan{{}}},
		} {
			key := []byte("y " + name)
			for _, m := range q.Mutations {
				m.Key = key
			}
			for _, s := range q.HoldSpans {
				s.Start, s.End = key, append(key, 0)
			}
			for _, keyspace := range []uint32{0, 7} {
				q := proto.Clone(q).(*kvpb.PrepareRequest)
				q.Transaction = &kvpb.Transaction{Id: transactionID(name), Keyspace: keyspace,
					Anchor: key, Begun: began, Started: began}
				l.submit(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: q}})
				answers := l.answers()
				if len(answers) != 1 || keyspace == 7 && answers[0].Error != nil || keyspace == 0 &&
					answers[0].Error.GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT {
					t.Errorf("%s in keyspace %d: %v", name, keyspace, answers)
				}
				if keyspace == 7 {
					continue
				}
				l.m.replica.m.Mu.Lock()
				l.m.replica.m.Mu.Locks.EachNamed(txn.ID(transactionID(name)),
					func(x *concurrency.Transaction) { t.Errorf("%s has locks: %+v", name, x) })
				l.m.replica.m.Mu.Unlock()
			}
		}
	})
}

// TestRecordsOfOneID: what is decided at one key says nothing of a record at another, be it in
// flight.
func TestRecordsOfOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newManyLocks(t, 1000)
		defer l.c.close()
		l.c.physical.Advance(time.Second)
		l.c.mu.Lock()
		l.c.auto = false
		l.c.mu.Unlock()
		began := wire.ToTimestamp(hlc.Timestamp{Wall: epoch})
		for anchor, commit := range map[string]bool{"b": true, "a": false} {
			q := &kvpb.EndTransactionRequest{Transaction: &kvpb.Transaction{Id: l.of.Id, Keyspace: 7,
				Anchor: []byte(anchor), Begun: began, Started: began}, Commit: commit}
			if commit {
				q.CommitTimestamp = wire.ToTimestamp(
					hlc.Timestamp{Wall: epoch + int64(1200*time.Millisecond)})
			}
			l.submit(&kvpb.Request{Command: &kvpb.Request_EndTransaction{EndTransaction: q}})
		}
		l.m.commit(-1)
		l.m.catchUp(-1)
		states := map[kvpb.TransactionState]int{}
		for _, r := range l.answers() {
			if r.Error != nil {
				t.Error(r.Error)
			}
			states[r.GetEndTransaction().GetStatus().GetState()]++
		}
		if states[kvpb.TransactionState_COMMITTED] != 1 || states[kvpb.TransactionState_ABORTED] != 1 {
			t.Errorf("%v", states)
		}
	})
}

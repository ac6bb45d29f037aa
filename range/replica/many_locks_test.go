package replica

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// manyLocks is a cluster of one, on which a transaction has locked many keys; what is proposed is
// applied at once.
type manyLocks struct {
	c *testCluster
	m *member
	// inbox are the answers.
	inbox inbox
	id    uint64
	of    *kvpb.Transaction
}

func newManyLocks(t *testing.T, n int) *manyLocks {
	l := &manyLocks{c: newTestCluster(t, 1, config.Limits{})}
	l.m = l.c.members[0]
	l.c.elect(l.m)
	l.m.catchUp(-1)
	l.c.auto = true
	l.c.physical.Advance(time.Second)
	began := &kvpb.Timestamp{Wall: uint64(epoch)}
	l.of = &kvpb.Transaction{Id: transactionID("T1"), Keyspace: 7, Anchor: []byte("a"), Begun: began,
		Started: began}
	for i := 0; i < n; i += 1000 {
		p := &kvpb.PrepareRequest{Transaction: l.of}
		for j := range 1000 {
			p.Mutations = append(p.Mutations,
				&kvpb.Mutation{Key: fmt.Appendf(nil, "k%06d", i+j), Value: []byte("v")})
		}
		l.submit(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: p}})
	}
	for _, r := range l.answers() {
		if r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	return l
}

// transactionLocked is the transaction, as the lock table has it. machine.Machine.Mu is held.
func (l *manyLocks) transactionLocked() *concurrency.Transaction {
	of, err := txn.ParseInfo(l.of)
	if err != nil {
		panic(err)
	}
	return l.m.replica.m.Mu.Locks.Transaction(&of)
}

func (l *manyLocks) submit(q *kvpb.Request) {
	l.send(q)
	l.c.settle()
}

// send is submit without waiting for anything.
func (l *manyLocks) send(q *kvpb.Request) {
	l.id++
	q.Id, q.Partition, q.Generation, q.Term, q.Sequence = l.id, 100, 1, l.c.term, l.id
	l.m.replica.Submit([]config.Pending{{Client: 1, Request: q, Arrived: time.Now(),
		Reply: l.inbox.reply}})
}

func (l *manyLocks) answers() []*kvpb.Response {
	l.c.settle()
	return l.inbox.take()
}

// TestManyLocksOfOneTransaction: a request that meets ten thousand locks of one transaction that is
// over asks one question, not one for each, and the locks end a thousand in an entry.
func TestManyLocksOfOneTransaction(t *testing.T) {
	const n = 10_000
	span := &kvpb.KeySpan{Start: []byte("k"), End: []byte("l")}
	late := wire.ToTimestamp(hlc.Timestamp{Wall: epoch + int64(1500*time.Millisecond)})
	other := &kvpb.Transaction{Id: transactionID("T2"), Keyspace: 7, Anchor: []byte("b"), Begun: late,
		Started: late}
	for name, q := range map[string]*kvpb.Request{
		"scan": {Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: span.Start, End: span.End,
			MaxRows: 10}}},
		"count": {Command: &kvpb.Request_Count{Count: &kvpb.CountRequest{Start: span.Start,
			End: span.End}}},
		"snapshot": {Command: &kvpb.Request_Count{Count: &kvpb.CountRequest{Start: span.Start,
			End: span.End, At: late}}},
		"refresh": {Command: &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{Transaction: other.Id,
			Begun: late, To: late,
			Reads: &kvpb.ReadSet{At: other.Started, Spans: []*kvpb.KeySpan{span}}}}},
		"delete range": {Command: &kvpb.Request_DeleteRange{
			DeleteRange: &kvpb.DeleteRangeRequest{Start: span.Start, End: span.End}}},
		"one phase": {Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{Transaction: other,
			Mutations: []*kvpb.Mutation{{Key: []byte("b"), Value: []byte("v")}},
			OnePhase:  &kvpb.OnePhase{Reads: &kvpb.ReadSet{At: late, Spans: []*kvpb.KeySpan{span}}}}}},
		"prepare": {Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{Transaction: other,
			Mutations: []*kvpb.Mutation{
				{Key: []byte("k000000"), Value: []byte("v")}, {Key: []byte("k005000"),
					Value: []byte("v")}, {Key: []byte("k009999"), Value: []byte("v")}}}}},
	} {
		for _, committed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, committed %t", name, committed), func(t *testing.T) {
				l := newManyLocks(t, n)
				defer l.c.close()
				l.c.physical.Advance(time.Second)
				before := len(l.c.log)
				l.submit(proto.Clone(q).(*kvpb.Request))
				status := &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED,
					Reason: kvpb.AbortReason_WOUNDED}
				if committed {
					status = &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
						Timestamp: wire.ToTimestamp(hlc.Timestamp{Wall: epoch + int64(1200*time.Millisecond)})}
				}
				pushes := 0
				for asked := l.m.pusher.take(""); len(asked) > 0; asked = l.m.pusher.take("") {
					pushes += len(asked)
					for _, a := range asked {
						a.done(status, nil)
						l.c.settle()
					}
				}
				answers := l.answers()
				if len(answers) != 1 || answers[0].Error != nil {
					t.Fatalf("after %d pushes: %v", pushes, answers)
				}
				if pushes != 1 {
					t.Errorf("%d pushes", pushes)
				}
				if entries := len(l.c.log) - before; entries > n/eval.LocksPerEntry+2 {
					t.Errorf("%d entries", entries)
				}
			})
		}
	}
}

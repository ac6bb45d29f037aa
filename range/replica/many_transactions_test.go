package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestLatestReadAmongManyTransactions: a read of the latest state that meets more transactions than
// it waits for at once, of which one has committed long ago, sees what was acknowledged before it
// began, and so does a moment.
func TestLatestReadAmongManyTransactions(t *testing.T) {
	ways := map[string]func(l *manyLocks) (at *kvpb.Timestamp){
		"scan": func(l *manyLocks) *kvpb.Timestamp {
			l.submit(&kvpb.Request{Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{}}})
			return l.pushed(t).GetScan().GetAt()
		},
		"moment": func(l *manyLocks) *kvpb.Timestamp {
			l.c.askMoment(l.m, l.inbox.reply)
			return l.pushed(t).GetMergeScan().GetAt()
		},
	}
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			l := newManyLocks(t, 0)
			defer l.c.close()
			began := l.of.Begun
			for i := range concurrency.DefaultMaxBlockers + 50 {
				key := fmt.Appendf(nil, "k%03d", i)
				l.submit(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
					Transaction: &kvpb.Transaction{Id: transactionID(fmt.Sprintf("T%d", i)), Keyspace: 7,
						Anchor: key, Begun: began, Started: began},
					Mutations: []*kvpb.Mutation{{Key: key, Value: []byte("v")}},
				}}})
			}
			l.c.physical.Advance(time.Second)
			l.submit(&kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{
				Key: []byte("y"), Value: []byte("acknowledged")}}})
			answers := l.answers()
			put := wire.FromTimestamp(answers[len(answers)-1].GetPut().GetVersion())
			if at := wire.FromTimestamp(ask(l)); at.Less(put) || put.IsZero() {
				t.Errorf("it is as of %s, a write at %s was acknowledged before", stamp(at), stamp(put))
			}
		})
	}
}

// pushed answers all questions, that of the transaction of the first key with a commit of long ago,
// and returns the answer to the one request that is open.
func (l *manyLocks) pushed(t *testing.T) *kvpb.Response {
	t.Helper()
	committed := &kvpb.Timestamp{Wall: uint64(epoch + int64(1500*time.Millisecond))}
	for asked := l.m.pusher.take(""); len(asked) > 0; asked = l.m.pusher.take("") {
		for _, a := range asked {
			status := &kvpb.TransactionStatus{Timestamp: a.request.Above}
			if string(a.request.Pushee.Anchor) == "k000" {
				status.State, status.Timestamp = kvpb.TransactionState_COMMITTED, committed
			}
			a.done(status, nil)
			l.c.settle()
		}
	}
	answers := l.answers()
	if len(answers) != 1 || answers[0].Error != nil {
		t.Fatalf("answers %v", answers)
	}
	return answers[0]
}

// askMoment asks a member for a moment of the whole partition.
func (c *testCluster) askMoment(m *member, reply func(*kvpb.Response)) {
	route := &kvpb.PartitionRoute{Partition: 100, Generation: 1, Term: c.term}
	q := &kvpb.Request{Id: 1, Command: &kvpb.Request_MergeScan{MergeScan: &kvpb.MergeScanRequest{
		Partitions: []*kvpb.PartitionRoute{route}}}}
	m.node.Reads.MergeScan(config.Pending{Client: 1, Request: q, Arrived: time.Now(), Reply: reply},
		[]read.Merged{{Reader: m.replica.reads, Route: route}})
	c.settle()
}

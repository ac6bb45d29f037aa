package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestOnlyOthersAreLoad: a large transaction is told that others use the node, and that something
// waits for its locks, and what it does itself does not count.
func TestOnlyOthersAreLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newManyLocks(t, 1000)
		defer l.c.close()
		keys, wanted := 0, false
		prepare := func(lowPriority bool) bool {
			keys++
			q := &kvpb.Request{Command: &kvpb.Request_Prepare{
				Prepare: &kvpb.PrepareRequest{Transaction: l.of, LowPriority: lowPriority,
					Mutations: []*kvpb.Mutation{{Key: []byte{'m', byte(keys)}, Value: []byte("v")}}}}}
			l.m.node.Asked([]*kvpb.Request{q}, time.Now())
			l.submit(q)
			answers := l.answers()
			if len(answers) != 1 || answers[0].Error != nil {
				t.Fatalf("%v", answers)
			}
			wanted = answers[0].GetPrepare().Wanted
			return answers[0].GetPrepare().Busy
		}
		time.Sleep(time.Millisecond)
		for _, own := range []*kvpb.Request{
			{}, {Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{LowPriority: true}}},
			{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{}}},
			{Command: &kvpb.Request_Push{Push: &kvpb.PushRequest{}}},
			{Command: &kvpb.Request_HeartbeatTransaction{
				HeartbeatTransaction: &kvpb.HeartbeatTransactionRequest{}}},
			{Command: &kvpb.Request_EndTransaction{EndTransaction: &kvpb.EndTransactionRequest{}}},
			{Background: true, Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{}}},
		} {
			if l.m.node.Asked([]*kvpb.Request{own}, time.Now()); prepare(true) {
				t.Errorf("%v is load of others", own)
			}
		}
		for _, other := range []*kvpb.Request{
			{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{}}},
			{Command: &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{}}},
			{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{}}},
			{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{}}},
		} {
			l.m.node.Asked([]*kvpb.Request{{}, other}, time.Now())
			if !prepare(true) {
				t.Errorf("%v is no load of others", other)
			}
			if time.Sleep(admission.BusyFor + 50*time.Millisecond); prepare(true) {
				t.Errorf("%v is still one much later", other)
			}
		}
		if prepare(false) || !prepare(true) {
			t.Error("a small transaction was told to back off, or is no load of others")
		}
		if wanted {
			t.Error("no request waits for its locks")
		}
		l.send(&kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k000007")}}})
		l.c.settle()
		if prepare(true); !wanted {
			t.Error("it was not told that a read waits for its locks")
		}
	})
}

// TestTheAnchorTellsWhoIsWanted: a transaction hears with its heartbeats that something waits for
// locks of its, in whatever partition, but not of the large transactions that do.
func TestTheAnchorTellsWhoIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newManyLocks(t, 1000)
		defer l.c.close()
		ask := func(q *kvpb.Request) *kvpb.Response {
			l.submit(q)
			answers := l.answers()
			if len(answers) != 1 || answers[0].Error != nil {
				t.Fatalf("%v", answers)
			}
			return answers[0]
		}
		beat := func() bool {
			return ask(&kvpb.Request{Command: &kvpb.Request_HeartbeatTransaction{
				HeartbeatTransaction: &kvpb.HeartbeatTransactionRequest{
					Transaction: l.of}}}).GetHeartbeatTransaction().Wanted
		}
		push := func(awaited bool) {
			ask(&kvpb.Request{Command: &kvpb.Request_Push{Push: &kvpb.PushRequest{Pushee: l.of,
				Seen: l.of.Begun, Kind: kvpb.PushRequest_STATUS, Awaited: awaited}}})
		}
		if beat() {
			t.Error("wanted before any request asked")
		}
		if push(false); beat() {
			t.Error("wanted by a request that does not wait")
		}
		if push(true); !beat() {
			t.Error("not wanted")
		}
		// In this order: the first goes on waiting.
		for _, lowPriority := range []bool{true, false} {
			awaited := !lowPriority
			late := wire.ToTimestamp(hlc.Timestamp{Wall: epoch + int64(1500*time.Millisecond)})
			other := &kvpb.Transaction{Id: transactionID("T2"), Keyspace: 7, Anchor: []byte("b"),
				Begun: late, Started: late}
			l.send(&kvpb.Request{Command: &kvpb.Request_Prepare{
				Prepare: &kvpb.PrepareRequest{Transaction: other, LowPriority: lowPriority,
					Mutations: []*kvpb.Mutation{{Key: []byte("k000007"), Value: []byte("v")}}}}})
			l.c.settle()
			asked := l.m.pusher.take("")
			if len(asked) == 0 || asked[len(asked)-1].request.Awaited != awaited {
				t.Errorf("lowPriority %t: asked with %v", lowPriority, asked)
			}
			for _, a := range asked {
				a.done(&kvpb.TransactionStatus{State: kvpb.TransactionState_PENDING}, nil)
			}
			l.c.settle()
			time.Sleep(time.Second)
			l.c.physical.Advance(time.Second)
		}
	})
}

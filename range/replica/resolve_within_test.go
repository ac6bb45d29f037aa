package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestResolveWithin: a resolve within a span ends the locks there, over as many requests as it
// takes, and no other; what it says of the transaction counts nowhere else.
func TestResolveWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, first, end = 6000, 1000, 4000
		l := newManyLocks(t, n)
		defer l.c.close()
		l.c.physical.Advance(time.Second)
		resolve := func(within *kvpb.KeySpan, background bool) *kvpb.Response {
			t.Helper()
			l.submit(&kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
				Within: within, Background: background,
				Resolutions: []*kvpb.Resolution{{Transaction: l.of.Id, Status: &kvpb.TransactionStatus{
					State: kvpb.TransactionState_COMMITTED, Timestamp: wire.ToTimestamp(
						hlc.Timestamp{Wall: epoch + int64(1200*time.Millisecond)})}}}}}})
			answers := l.answers()
			if len(answers) != 1 {
				t.Fatalf("%d answers", len(answers))
			}
			return answers[0]
		}
		span := &kvpb.KeySpan{Start: []byte("k001000"), End: []byte("k004000")}
		if code := resolve(span, false).Error.GetCode(); code != kvpb.ErrorCode_INVALID_ARGUMENT {
			t.Errorf("not in the background: %v", code)
		}
		var resolved uint64
		requests := 0
		for more := true; more; requests++ {
			r := resolve(span, true)
			if r.Error != nil || requests > n {
				t.Fatal(requests, r)
			}
			resolved, more = resolved+r.GetResolve().Resolved, r.GetResolve().More
		}
		if resolved != end-first || requests < 2 {
			t.Errorf("%d locks were ended by %d requests, of %d", resolved, requests, end-first)
		}
		if r := resolve(span, true); r.GetResolve().GetResolved() != 0 || r.GetResolve().GetMore() {
			t.Errorf("again: %v", r)
		}
		locked := 0
		l.m.replica.m.Mu.Lock()
		for _, key := range []string{"k000999", "k001000", "k003999", "k004000"} {
			if l.m.replica.m.Mu.Locks.Get(key) != nil {
				locked++
			}
		}
		x := l.transactionLocked()
		left, state := x.Locks(), x.Known.State
		l.m.replica.m.Mu.Unlock()
		if locked != 2 || left != n-(end-first) || state != kvpb.TransactionState_PENDING {
			t.Errorf("%d of the keys at the ends are locked, %d keys in all; the transaction is %s",
				locked, left, state)
		}
	})
}

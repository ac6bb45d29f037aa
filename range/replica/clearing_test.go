package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestClearingsRest: the locks of a large transaction that nobody waits for become versions at leisure, the more so if others use the node, and
// those that somebody waits for without delay. Either way the answer to a Resolve comes when none is left.
func TestClearingsRest(t *testing.T) {
	for name, x := range map[string]struct{ wanted, crowded, write bool }{
		"nobody waits": {}, "nobody waits, others use the node": {crowded: true}, "a read waits": {wanted: true, crowded: true},
		"a large write waits": {wanted: true, crowded: true, write: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { clearingsRest(t, x.wanted, x.crowded, x.write) })
		})
	}
}

func clearingsRest(t *testing.T, wanted, crowded, write bool) {
	const n = 5000
	l := newManyLocks(t, n)
	defer l.c.close()
	l.c.physical.Advance(time.Second)
	l.m.node.hooks.lockTime, l.m.node.hooks.evaluate = nil, func() { time.Sleep(time.Millisecond) }
	before, began, expected := len(l.c.log), time.Now(), 1
	if wanted {
		expected++
		q := &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k000007")}}}
		if write {
			q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("k002500"), Value: make([]byte, 100<<10)}}
		}
		l.send(q)
	}
	l.send(&kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{Resolutions: []*kvpb.Resolution{{
		Transaction: l.of.Id, Status: &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
			Timestamp: rpc.ToTimestamp(hlc.Timestamp{Wall: epoch + int64(1200*time.Millisecond)})}}}}}})
	var answers []*kvpb.Response
	others := []*kvpb.Request{{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("other")}}}}
	for range 10_000 {
		if crowded {
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
	entries, took, times := len(l.c.log)-before, time.Since(began), restTimes
	if crowded {
		times = crowdedTimes
	}
	switch rested := !l.m.node.pace.next.IsZero(); {
	case wanted && rested:
		t.Error("it rested, though a read was waiting")
	case wanted && entries > n/resolveLocks+2:
		t.Errorf("%d entries", entries)
	case !wanted && (!rested || took < time.Duration((entries-2)*times)*time.Millisecond):
		t.Errorf("%d entries came in %s", entries, took)
	}
}

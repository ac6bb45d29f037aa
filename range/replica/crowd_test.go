package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestOnlyOthersAreACrowd: a large transaction is told to rest if others use the node, as long as nobody waits for its locks, and what it does
// itself does not count.
func TestOnlyOthersAreACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newManyLocks(t, 1000)
		defer l.c.close()
		keys := 0
		lay := func(patient bool) bool {
			keys++
			q := &kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{Transaction: l.of, Patient: patient,
				Mutations: []*kvpb.Mutation{{Key: []byte{'m', byte(keys)}, Value: []byte("v")}}}}}
			l.m.node.Asked([]*kvpb.Request{q}, time.Now())
			l.submit(q)
			answers := l.answers()
			if len(answers) != 1 || answers[0].Error != nil {
				t.Fatalf("%v", answers)
			}
			return answers[0].GetPrepare().Crowded
		}
		time.Sleep(time.Millisecond)
		for _, own := range []*kvpb.Request{
			{}, {Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{Patient: true}}}, {Command: &kvpb.Request_Resolve{}},
			{Command: &kvpb.Request_Push{}}, {Command: &kvpb.Request_HeartbeatTransaction{}}, {Command: &kvpb.Request_EndTransaction{}},
		} {
			if l.m.node.Asked([]*kvpb.Request{own}, time.Now()); lay(true) {
				t.Errorf("%v is a crowd", own)
			}
		}
		for _, other := range []*kvpb.Request{
			{Command: &kvpb.Request_Get{}}, {Command: &kvpb.Request_MultiGet{}}, {Command: &kvpb.Request_Put{}}, {Command: &kvpb.Request_Prepare{}},
		} {
			l.m.node.Asked([]*kvpb.Request{{}, other}, time.Now())
			if !lay(true) {
				t.Errorf("%v is no crowd", other)
			}
			if time.Sleep(crowdedFor + crowdedNote); lay(true) {
				t.Errorf("%v is still one much later", other)
			}
		}
		if lay(false) || !lay(true) {
			t.Error("a small transaction was told to rest, or is no crowd")
		}
		l.send(&kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k000007")}}})
		l.c.settle()
		if lay(true) {
			t.Error("it was told to rest while a read waited for its locks")
		}
	})
}

package replica

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// check is how often a read of changes looks, at least, whether it may be answered.
const check = 50 * time.Millisecond

// heldFeed is a partition of two replicas, and a feed that asks the second one.
type heldFeed struct {
	*scenario
	leader, follower *member
}

func newHeldFeed(t *testing.T) *heldFeed {
	s := &scenario{t: t}
	t.Cleanup(s.close)
	s.c = newTestCluster(t, 2, config.Limits{MaxWaitingReads: 8})
	f := &heldFeed{scenario: s, leader: s.c.members[0], follower: s.c.members[1]}
	for _, m := range s.c.members {
		m.node.Hooks.LockTime = nil // so that timers run, in virtual time
	}
	s.c.physical.Advance(5 * time.Second)
	s.c.elect(f.leader)
	f.step()
	f.write("put k v1")
	f.close(2 * time.Second)
	return f
}

func (f *heldFeed) step() {
	f.leader.commit(-1)
	f.leader.catchUp(-1)
	f.follower.catchUp(-1)
}

// write has a write applied everywhere.
func (f *heldFeed) write(line string) {
	f.leader.replica.Submit([]config.Pending{f.parseRequest(line)})
	f.step()
	f.c.settle()
}

// close lets time pass, and closes beside the log.
func (f *heldFeed) close(d time.Duration) {
	f.c.physical.Advance(d)
	closed, index, ok := f.leader.replica.CloseIdle()
	if !ok {
		f.t.Fatal("nothing can be closed")
	}
	f.follower.replica.NoteClosed(closed, index)
}

// ask sends a request that may be held for so many seconds, above what is closed now.
func (f *heldFeed) ask(idle time.Duration) (after hlc.Timestamp) {
	p := f.parseRequest("changes - - any-replica wait=5000")
	c := p.Request.GetChanges()
	after = f.follower.replica.Closed()
	c.After, c.IdleMicros = wire.ToTimestamp(after), uint64(idle.Microseconds())
	f.follower.replica.Submit([]config.Pending{p})
	synctest.Wait()
	return after
}

// taken are the answers to what was asked that have come since the last call.
func (f *heldFeed) taken() []*kvpb.Response {
	synctest.Wait()
	return slices.DeleteFunc(f.answers.take(), func(r *kvpb.Response) bool {
		return r.GetPut() != nil
	})
}

// answer is what has come since the last call; nil if nothing has.
func (f *heldFeed) answer() *kvpb.Response {
	came := f.taken()
	switch len(came) {
	case 0:
		return nil
	case 1:
		return came[0]
	}
	f.t.Fatalf("%d answers: %v", len(came), came)
	return nil
}

// answerOf describes an answer, or that there is none.
func answerOf(r *kvpb.Response) string {
	if r == nil {
		return "no answer"
	}
	return describe(r)
}

// TestChangesAreHeld: a request for changes is held while nothing was written, and answered when
// what was written is closed; or, when its time is over, with what is resolved.
func TestChangesAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHeldFeed(t)
		after := f.ask(3 * time.Second)
		f.close(time.Second)
		time.Sleep(2 * time.Second) // virtual
		if r := f.answer(); r != nil {
			t.Fatalf("answered before its time: %s", answerOf(r))
		}
		f.close(time.Second)
		closed := f.follower.replica.Closed()
		time.Sleep(time.Second) // virtual
		r := f.answer()
		if got := wire.FromTimestamp(r.GetChanges().GetResolved()); got != closed ||
			len(r.GetChanges().Changes) > 0 {
			t.Fatalf("nothing was written after %s up to %s: %s", after, closed, answerOf(r))
		}

		f.ask(3 * time.Second)
		f.write("put k v2")
		time.Sleep(time.Second) // virtual
		if r := f.answer(); r != nil {
			t.Fatalf("answered before what was written is closed: %s", answerOf(r))
		}
		f.close(2 * time.Second)
		time.Sleep(check) // virtual
		r = f.answer()
		if c := r.GetChanges().GetChanges(); len(c) != 1 || string(c[0].Value) != "v2" {
			t.Fatalf("v2 was written: %s", answerOf(r))
		}

		// What is closed has one of the two versions that were written.
		f.ask(3 * time.Second)
		f.write("put k v3")
		f.c.physical.Advance(1500 * time.Millisecond)
		f.write("put k v4")
		time.Sleep(check) // virtual
		r = f.answer()
		if c := r.GetChanges().GetChanges(); len(c) != 1 || string(c[0].Value) != "v3" {
			t.Fatalf("v3 was written, and is closed: %s", answerOf(r))
		}
	})
}

// TestChangesNotClosed: nothing above what is asked for is closed, so there is no answer; the
// request waits as long as a read does, and the leader is to answer then.
func TestChangesNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHeldFeed(t)
		f.ask(time.Second)
		time.Sleep(4 * time.Second) // virtual
		if r := f.answer(); r != nil {
			t.Fatalf("answered before its time: %s", answerOf(r))
		}
		time.Sleep(time.Second) // virtual
		if r := f.answer(); r.GetError().GetCode() != kvpb.ErrorCode_NOT_CLOSED {
			t.Fatalf("nothing is closed: %s", answerOf(r))
		}
	})
}

// TestFewFeedsAreHeld: no more requests are held than half of the reads that may wait; the others
// are answered at once, if there is anything to say.
func TestFewFeedsAreHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHeldFeed(t)
		after := f.ask(3 * time.Second)
		for range 3 {
			f.ask(3 * time.Second)
		}
		f.close(time.Second)
		if r := f.answer(); r != nil {
			t.Fatalf("answered before its time: %s", answerOf(r))
		}
		p := f.parseRequest("changes - - any-replica wait=5000 idle=3000")
		p.Request.GetChanges().After = wire.ToTimestamp(after)
		f.follower.replica.Submit([]config.Pending{p})
		r := f.answer()
		if got := wire.FromTimestamp(r.GetChanges().GetResolved()); got != f.follower.replica.Closed() {
			t.Fatalf("up to %s is closed: %s", f.follower.replica.Closed(), answerOf(r))
		}
		time.Sleep(3 * time.Second) // virtual
		if n := len(f.taken()); n != 4 {
			t.Fatalf("%d of 4 are answered", n)
		}
	})
}

// TestChangesCollectedWhileHeld: versions that are collected while a request is held are not missed
// in silence, also if what the request reads up to is still kept.
func TestChangesCollectedWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHeldFeed(t)
		f.ask(3 * time.Second)
		f.write("put k v2")
		f.write("put k v3")
		f.close(2 * time.Second)
		now := hlc.Timestamp{Wall: f.c.physical.Now()}
		f.auto(&strings.Builder{}, func(ctx context.Context, r *Replica) error {
			r.GC().SetKept(1500*time.Millisecond, hlc.Timestamp{})
			_, err := r.GC().Collect(ctx, now)
			return err
		})
		f.step()
		time.Sleep(3 * time.Second) // virtual
		if r := f.answer(); r.GetError().GetCode() != kvpb.ErrorCode_TIMESTAMP_TOO_OLD {
			t.Fatalf("v2 was collected: %s", answerOf(r))
		}
	})
}

// TestHeldChangesOutliveACollection: what a held request is answered with is complete, also if the
// threshold of garbage collection passes where it began, for nothing was written since.
func TestHeldChangesOutliveACollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHeldFeed(t)
		f.write("put k old")
		f.close(2 * time.Second)
		after := f.ask(3 * time.Second)
		f.close(2 * time.Second)
		time.Sleep(check) // virtual: it is known to be quiet until now
		f.c.physical.Advance(500 * time.Millisecond)
		f.leader.replica.GC().SetKept(2*time.Second, hlc.Timestamp{})
		collected := make(chan error, 1)
		go func() {
			_, err := f.leader.replica.GC().Collect(context.Background(), f.leader.node.Clock.Now())
			collected <- err
		}()
		for range 5 {
			synctest.Wait()
			f.step()
		}
		if err := <-collected; err != nil {
			t.Fatal(err)
		}
		if threshold := f.follower.replica.m.Threshold(); threshold.LessEq(after) {
			t.Fatalf("the threshold %s has not passed %s", threshold, after)
		}
		f.write("put k new")
		f.close(2 * time.Second)
		time.Sleep(check) // virtual
		if c := f.answer().GetChanges().GetChanges(); len(c) != 1 || string(c[0].Value) != "new" {
			t.Fatalf("what was written is not told: %v", c)
		}
	})
}

package replica

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// TestArbitraryRequests: whatever clients send, nothing panics, every request is answered once, the
// replica serves afterwards, and another one that applies the same log has the same state.
func TestArbitraryRequests(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHostile(t, seed)
			defer h.c.close()
			for range 600 {
				h.send()
				h.take()
				h.meanwhile()
				h.take()
			}
			h.end()
			h.check()
		})
	}
}

// hostile are clients of a partition with two replicas that send what they like. What is proposed
// is applied at once by the leader, and in the end by the other one.
type hostile struct {
	*testing.T
	*arbitrary
	c        *testCluster
	m, other *member
	timers   *bells
	box      inbox
	sent     int
	// answers counts those to each request.
	answers map[uint64]int
}

func newHostile(t *testing.T, seed uint64) *hostile {
	h := &hostile{T: t, answers: make(map[uint64]int), timers: &bells{set: make(map[*bell]struct{})}}
	h.c = newTestCluster(t, 2, config.Limits{MaxSpanLocks: 4, MaxLockWaiters: 30})
	h.m, h.other = h.c.members[0], h.c.members[1]
	h.m.node.locking.MaxBlockers = cmp.Or(int(seed%3), concurrency.DefaultMaxBlockers)
	h.m.node.AfterFunc, h.m.node.Waits.AfterFunc = h.timers.after, h.timers.after
	h.c.elect(h.m)
	h.m.catchUp(-1)
	h.c.auto = true
	h.c.physical.Advance(time.Second)
	h.arbitrary = &arbitrary{Rand: rand.New(rand.NewPCG(seed, 1)), now: h.m.Now,
		epochNumber: func() uint64 {
			h.m.replica.m.Mu.Lock()
			defer h.m.replica.m.Mu.Unlock()
			return h.m.replica.m.Mu.Leadership.Epoch().Wire(0).Epoch
		}}
	return h
}

// send sends a request.
func (h *hostile) send() {
	q := h.request()
	route := &kvpb.PartitionRoute{Partition: 100, Generation: 1, Term: h.c.term}
	if g := q.GetMultiGet(); g != nil {
		if len(g.Partitions) == 0 {
			return
		}
		for _, p := range g.Partitions {
			p.Partition, p.Generation, p.Term = route.Partition, route.Generation, route.Term
		}
	}
	if _, now := q.Command.(*kvpb.Request_Now); now {
		return // the node answers
	}
	h.sent++
	q.Id, q.Partition, q.Generation, q.Term = uint64(h.sent), 100, 1, h.c.term
	q.Sequence = uint64(h.sent)
	if h.oneOf(5) {
		q.Sequence = uint64(1 + h.IntN(h.sent))
	}
	if h.oneOf(3) {
		q.TimeoutMicros = uint64(h.IntN(1e6))
	}
	if h.oneOf(4) {
		q.Session = &kvpb.Timestamp{}
		h.message(q.Session.ProtoReflect(), 0)
	}
	pending := config.Pending{Client: uint64(1 + h.IntN(2)), Request: q, Arrived: h.c.lockTime(),
		Reply: h.box.reply}
	switch {
	case q.GetMergeScan() != nil:
		q.GetMergeScan().Partitions = []*kvpb.PartitionRoute{route}
		h.m.node.Reads.MergeScan(pending, []read.Merged{{Reader: h.m.replica.reads, Route: route}})
	case q.GetMultiGet() != nil:
		h.m.node.Reads.MultiGet(pending, h.m)
	default:
		h.m.replica.Submit([]config.Pending{pending})
	}
}

// take takes in the answers.
func (h *hostile) take() {
	h.c.settle()
	for _, r := range h.box.take() {
		h.answers[r.Id]++
	}
}

// meanwhile is what happens between requests.
func (h *hostile) meanwhile() {
	h.timers.ring()
	r := h.m.replica
	switch h.IntN(20) {
	case 0, 1:
		h.c.physical.Advance(time.Duration(h.IntN(300)) * time.Millisecond)
		h.m.ringTimers()
	case 2, 3:
		h.wait(300 * time.Millisecond)
		r.eval.ReevaluateWaiters()
	case 4, 5:
		r.eval.SweepLocks(h.m.Now())
	case 6:
		h.m.tell(group.Leadership{Term: h.c.term, Leader: h.m.id, IsLeader: true})
	case 7:
		r.eval.SetCommitWait(h.oneOf(2))
	case 8:
		r.GC().SetKept(500*time.Millisecond, hlc.Timestamp{})
		if _, err := r.GC().Collect(context.Background(),
			hlc.Timestamp{Wall: h.m.Now()}); err != nil {
			h.Log(err)
		}
	case 9, 10, 11, 12:
		h.tellOutcomes()
	}
}

// wait has what waits grow impatient.
func (h *hostile) wait(d time.Duration) {
	h.c.mu.Lock()
	h.c.waited += d
	h.c.mu.Unlock()
}

// tellOutcomes answers questions about transactions.
func (h *hostile) tellOutcomes() {
	for _, asked := range h.m.pusher.take("") {
		status := &kvpb.TransactionStatus{State: kvpb.TransactionState(h.IntN(3)),
			Timestamp: asked.request.Above}
		if status.State == kvpb.TransactionState_COMMITTED && status.Timestamp == nil {
			status.Timestamp = wire.ToTimestamp(hlc.Timestamp{Wall: h.m.Now()})
		}
		var err error
		if h.oneOf(4) {
			err = txn.ErrCoordinatorGone
		}
		asked.done(status, err)
		h.c.settle()
	}
}

// end ends all transactions, and the time of all requests.
func (h *hostile) end() {
	for range 40 {
		h.wait(time.Hour)
		h.c.physical.Advance(4 * time.Second)
		h.m.replica.eval.SweepLocks(h.m.Now())
		for _, asked := range h.m.pusher.take("") {
			asked.done(&kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED}, nil)
		}
		h.m.ringTimers()
		h.timers.ring()
		h.m.failReadsOnce(nil)
		h.take()
	}
}

func (h *hostile) check() {
	for id := range uint64(h.sent) {
		if n := h.answers[id+1]; n != 1 {
			h.Errorf("request %d has %d answers", id+1, n)
		}
	}
	if h.m.replica.Locked() {
		h.Error("there are locks")
	}
	h.m.replica.eval.SetCommitWait(false)
	put := &kvpb.Request{Id: 1, Generation: 1, Term: h.c.term, Sequence: 1,
		Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("b")}}}
	now := h.c.lockTime()
	h.m.replica.Submit([]config.Pending{{Client: 9, Arrived: now, Reply: h.box.reply, Request: put}})
	h.c.settle()
	if answers := h.box.take(); len(answers) != 1 || answers[0].Error != nil {
		h.Errorf("a put is answered with %v", answers)
	}
	h.other.catchUp(-1)
	index, sum, err := h.m.replica.Checksum()
	otherIndex, otherSum, otherErr := h.other.replica.Checksum()
	if index != otherIndex || sum != otherSum || err != nil || otherErr != nil {
		h.Errorf("at %d and at %d the replicas differ, or fail: %v, %v",
			index, otherIndex, err, otherErr)
	}
}

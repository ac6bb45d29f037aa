package machine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/range/replica/closing"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/range/replica/tscache"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Machine is a replica's state machine as it is in memory.
type Machine struct {
	Node  *config.Node
	Group config.Group
	State *engine.State
	ID    keys.PartitionID
	Self  keys.ReplicaID

	published
	// threshold is the garbage collection threshold: nothing below it can be read.
	threshold atomic.Pointer[hlc.Timestamp]
	// closedLag is a time.Duration; 0 is the default, and negative that nothing is closed.
	closedLag atomic.Int64
	// Vacant is what is known of spans without values.
	Vacant vacant.Memory

	Refuse refusal.Refuser
	Work   work
	// HeldAnswers are those that commit wait holds back.
	HeldAnswers commitwait.Queue
	life

	// Mu guards what makes this one state machine. Each field is a room of its own, without a lock.
	Mu struct {
		sync.Mutex
		// Applied is written by the replica only, when it has applied entries or installed a snapshot.
		Applied storage.Record
		// Failed is why nothing is applied any more.
		Failed     error
		Leadership leadership.State
		entries
		// Pending are the writes that are evaluated and not applied.
		Pending proposal.Pending
		Closing closing.Timestamps
		Cache   tscache.Cache
		// Locks are the locks of transactions, and what waits for them.
		Locks concurrency.Manager
		// Foreign is the max foreign commit timestamp: at or above every version that a
		// transaction's commit put above the timestamp at which it was prepared here. What is at or
		// below it may have been acknowledged before this node's clock had come to it.
		Foreign hlc.Timestamp
		// WaitingReads counts the reads that wait, for whatever it is.
		WaitingReads int
	}
}

// New makes one that has applied nothing.
func New(node *config.Node, group config.Group, state *engine.State, id keys.PartitionID,
	self keys.ReplicaID) *Machine {
	m := &Machine{Node: node, Group: group, State: state, ID: id, Self: self}
	m.Refuse = refusal.Refuser{Partition: id, Self: self, Group: group, Node: node,
		Descriptor: m.Descriptor}
	m.HeldAnswers.Init(&node.Waits, heldMost, m.Manual)
	return m
}

// Manual says that no timers run.
func (r *Machine) Manual() bool { return r.Node.Hooks.LockTime != nil }

// Leadership is what the group said last.
func (r *Machine) Leadership() group.Leadership {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Mu.Leadership.Leadership
}

// Unavailable is why a replica answers no requests at all: the first of these that is set, or that
// the replica is closed.
type Unavailable struct {
	failed error
	// Stale is the descriptor that has taken the place of the one that requests name.
	Stale *clusterpb.Partition
}

// UnavailableLocked is nil if the replica may answer.
func (r *Machine) UnavailableLocked() *Unavailable {
	failed, by := r.Mu.Failed, r.ConsumedBy()
	if failed == nil && by == nil && !r.IsClosed() {
		return nil
	}
	return &Unavailable{failed, by}
}

// Refuse is the answer to a request. No lock is held.
func (u *Unavailable) Refuse(r *Machine, q *kvpb.Request) *kvpb.Response {
	switch {
	case u.failed != nil:
		return r.Refuse.Failed(q, u.failed)
	case u.Stale != nil && !r.IsClosed():
		return r.Refuse.StaleEpoch(q, u.Stale)
	}
	return r.Refuse.Closed(q)
}

// LowDueLocked says whether this leadership must not read or write for a client yet. It takes the
// low-water mark if that is due and the clock is believed by now: what hears of that late, or
// never, because it was elected or opened meanwhile, is asked by its first request.
func (r *Machine) LowDueLocked() bool {
	l := &r.Mu.Leadership
	if !l.LowDue() || !l.IsLeader || !r.Node.BelievesClock() {
		return l.LowDue()
	}
	clock := r.Node.Clock
	l.TakeLateLow(clock.Reached(), clock.MaxAhead(), clock.Physical())
	r.Mu.Cache.Raise(l.Low())
	return false
}

// CheckServingLocked opens the gate when it may be opened.
func (r *Machine) CheckServingLocked() {
	l := &r.Mu.Leadership
	if !l.MayServe(&r.Mu.Applied) {
		return
	}
	if l.Serve(&r.Mu.Applied, r.Node.Clock.Physical()) {
		r.Mu.Cache.Reset(l.Low())
	} else {
		r.Mu.Cache.Raise(l.Low())
	}
	r.HoldLocked()
}

// Conflicts counts a conflict of transactions.
func (r *Machine) Conflicts() { r.Node.Metrics.Transactions.Conflicts.Inc() }

// SameLeadership says that reads were made under the present leadership epoch.
func (r *Machine) SameLeadership(l *kvpb.Leadership) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Mu.Leadership.Serving() && r.IsLeadershipLocked(l)
}

// IsLeadershipLocked says that a leadership is the present one of this replica.
func (r *Machine) IsLeadershipLocked(l *kvpb.Leadership) bool {
	return r.Mu.Leadership.Epoch().IsWire(r.ID, l)
}

// TooOld refuses what garbage collection has made unreadable; nil if it can be read.
func (r *Machine) TooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
	if threshold := r.Threshold(); at.Less(threshold) {
		return r.Refuse.TooOld(q, at, threshold)
	}
	return nil
}

// TooManyReadsLocked says that no more reads may wait.
func (r *Machine) TooManyReadsLocked() bool {
	return r.Mu.WaitingReads+r.Mu.Locks.Reads.Len() >= r.Node.MaxWaitingReads
}

// Threshold is the garbage collection threshold: nothing below it can be read.
func (r *Machine) Threshold() hlc.Timestamp { return *r.threshold.Load() }

// RaiseThreshold publishes the threshold, unless a higher one is. Its callers wait for each other.
func (r *Machine) RaiseThreshold(to hlc.Timestamp) {
	if at := r.threshold.Load(); at == nil || at.Less(to) {
		r.threshold.Store(&to)
	}
}

// HoldLocked has all requests of a frozen partition wait, also those that waited for the entry
// which has frozen it; and lets them go on when it is not frozen any more. It returns an entry with
// the reads that are to go on, or nil.
func (r *Machine) HoldLocked() (over *Entry) {
	held := r.Mu.Holding
	frozen := r.Descriptor().GetFrozen() != nil
	switch {
	case !frozen && held != nil && held.Standing:
		r.Mu.Holding = nil
		r.Mu.WaitingReads -= len(held.Waiters)
		return held
	case frozen && r.Mu.Leadership.Serving() && held == nil:
		r.Mu.Holding = &Entry{Standing: true}
	}
	return nil
}

// StandLocked has the reads that wait for the entry that has frozen the partition wait on.
func (r *Machine) StandLocked(p *Entry) {
	if r.Mu.Holding == p && r.Descriptor().GetFrozen() != nil {
		r.Mu.Holding = &Entry{Standing: true, Waiters: p.Waiters}
		p.Waiters = nil
	}
}

// GoActive runs f in the pool, and counts it as active.
func (r *Machine) GoActive(f func()) bool { return r.goIn(r.Node.Pool, f) }

// GoLong runs f in the pool for long reads, and counts it as active.
func (r *Machine) GoLong(f func()) bool { return r.goIn(r.Node.Long, f) }

func (r *Machine) goIn(pool *config.Pool, f func()) bool {
	r.Hold()
	if pool.Go(func() {
		defer r.Exit()
		began := time.Now()
		f()
		r.Work.pooled.Add(int64(time.Since(began)))
	}) {
		return true
	}
	r.Exit()
	return false
}

// heldMost is how many answers a partition holds back at most; more are told that their outcome is
// unknown.
const heldMost = 16 << 10

func (r *Machine) Passed(ts hlc.Timestamp) bool { return r.Node.Waits.Passed(ts) }

// heldAnswer is an answer that waits for the clocks: a commitwait.Held.
type heldAnswer struct {
	Answer
	r *Machine
}

func (h *heldAnswer) Release() { h.r.Reply(h.Pending, h.Command, h.Response) }

func (h *heldAnswer) Refuse() {
	h.r.Reply(h.Pending, h.Command, h.r.Refuse.UnknownOutcome(h.Pending.Request))
}

// Send answers a request, now or when every clock has passed what the answer waits for.
func (r *Machine) Send(a *Answer) {
	if a.Hold.IsZero() || r.Passed(a.Hold) {
		r.Reply(a.Pending, a.Command, a.Response)
		return
	}
	if h := (&heldAnswer{*a, r}); !r.HeldAnswers.Hold(a.Hold, h) {
		h.Refuse()
	}
}

// WaitsNoMore counts reads that do not wait any longer.
func (r *Machine) WaitsNoMore(reads int) {
	r.Mu.Lock()
	r.Mu.WaitingReads -= reads
	r.Mu.Unlock()
}

// Reply answers a request, now.
func (r *Machine) Reply(p config.Pending, c *command.Command, response *kvpb.Response) {
	if response.Now == nil {
		r.Node.Tell(response, hlc.Timestamp{})
	}
	r.Node.Metrics.Answered(c, response)
	p.Reply(response)
}

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
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Machine is the state machine of a replica in memory.
type Machine struct {
	Node  *config.Node
	Group config.Group
	State *engine.State
	ID    keys.PartitionID
	Self  keys.ReplicaID

	published
	// threshold is the garbage collection threshold: no version below it can be read.
	threshold atomic.Pointer[hlc.Timestamp]
	// closedLag is a time.Duration; 0: the default; negative: no timestamps are closed.
	closedLag atomic.Int64
	// Vacant remembers spans without values.
	Vacant vacant.Memory

	Refuse refusal.Refuser
	Work   work
	// HeldAnswers are the answers that commit wait holds back.
	HeldAnswers commitwait.Queue
	life

	// Mu guards the state machine. Each field is a room of its own, without a lock.
	Mu struct {
		sync.Mutex
		// Applied is written only by the replica, when it has applied entries or installed a
		// snapshot.
		Applied storage.Record
		// Failed is the error after which nothing is applied; nil if the replica works.
		Failed     error
		Leadership leadership.State
		entries
		// Pending are the writes that are evaluated and not applied.
		Pending proposal.Pending
		Closing closing.Timestamps
		Cache   tscache.Cache
		// Locks holds the locks of transactions, and the requests that wait for them.
		Locks concurrency.Manager
		// Foreign is the highest foreign commit timestamp: at or above every version that a
		// transaction's commit put above the timestamp at which it was prepared here. A version at
		// or below it may have been acknowledged before this node's clock had reached its
		// timestamp.
		Foreign hlc.Timestamp
		// WaitingReads counts the reads that wait, for whatever reason.
		WaitingReads int
	}
}

// New returns a machine that has applied nothing.
func New(node *config.Node, group config.Group, state *engine.State, id keys.PartitionID,
	self keys.ReplicaID) *Machine {
	m := &Machine{Node: node, Group: group, State: state, ID: id, Self: self}
	m.Refuse = refusal.Refuser{Partition: id, Self: self, Group: group, Node: node,
		Descriptor: m.Descriptor}
	m.HeldAnswers.Init(&node.Waits, heldMost, m.Manual)
	return m
}

// Manual reports that no timers run, as in tests with virtual lock time.
func (r *Machine) Manual() bool { return r.Node.Hooks.LockTime != nil }

// Leadership returns what the group reported last.
func (r *Machine) Leadership() group.Leadership {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Mu.Leadership.Leadership
}

// Unavailable is the reason why a replica answers no requests: the first field that is set, or, if
// no field is set, that the replica is closed.
type Unavailable struct {
	failed error
	// Stale is the descriptor that has replaced the descriptor that requests name.
	Stale *clusterpb.Partition
}

// UnavailableLocked returns the reason why the replica may not answer; nil if it may.
func (r *Machine) UnavailableLocked() *Unavailable {
	failed, by := r.Mu.Failed, r.SubsumedBy()
	if failed == nil && by == nil && !r.IsClosed() {
		return nil
	}
	return &Unavailable{failed, by}
}

// Refuse returns the refusal of a request. The caller holds no lock.
func (u *Unavailable) Refuse(r *Machine, q *kvpb.Request) *kvpb.Response {
	switch {
	case u.failed != nil:
		return r.Refuse.Failed(q, u.failed)
	case u.Stale != nil && !r.IsClosed():
		return r.Refuse.StaleEpoch(q, u.Stale)
	}
	return r.Refuse.Closed(q)
}

// LowDueLocked reports whether this leadership must not read or write for a client yet. It takes
// the low-water mark if that is due and the clock is believed by now: a replica that was elected or
// opened while the node's clock came to be believed may miss that call, so its first request looks.
func (r *Machine) LowDueLocked() bool {
	l := &r.Mu.Leadership
	if !l.LowDue() || !l.IsLeader || !r.Node.ClockTrusted() {
		return l.LowDue()
	}
	clock := r.Node.Clock
	l.TakeLateLow(clock.Reached(), clock.MaxAhead(), clock.Physical())
	r.Mu.Cache.Raise(l.Low())
	return false
}

// CheckServingLocked opens the gate if the conditions are met.
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

// SameLeadership reports that reads were made under the present leadership epoch.
func (r *Machine) SameLeadership(l *kvpb.Leadership) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Mu.Leadership.Serving() && r.IsLeadershipLocked(l)
}

// IsLeadershipLocked reports that a leadership is the present one of this replica.
func (r *Machine) IsLeadershipLocked(l *kvpb.Leadership) bool {
	return r.Mu.Leadership.Epoch().IsWire(r.ID, l)
}

// TooOld returns the refusal of a read below the garbage collection threshold; nil if at is above
// it.
func (r *Machine) TooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
	if threshold := r.Threshold(); at.Less(threshold) {
		return r.Refuse.TooOld(q, at, threshold)
	}
	return nil
}

// TooManyReadsLocked reports that no more reads may wait.
func (r *Machine) TooManyReadsLocked() bool {
	return r.Mu.WaitingReads+r.Mu.Locks.Reads.Len() >= r.Node.MaxWaitingReads
}

// Threshold returns the garbage collection threshold: no version below it can be read.
func (r *Machine) Threshold() hlc.Timestamp { return *r.threshold.Load() }

// RaiseThreshold publishes a threshold, unless a higher one is published. Its callers call it one
// at a time.
func (r *Machine) RaiseThreshold(to hlc.Timestamp) {
	if at := r.threshold.Load(); at == nil || at.Less(to) {
		r.threshold.Store(&to)
	}
}

// HoldLocked makes the requests of a frozen partition wait, also those that wait for the entry
// which has frozen it. When the partition is not frozen any more, it returns an entry with the
// reads that go on; otherwise nil.
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

// StandLocked lets the reads that wait for the entry which has frozen the partition wait on.
func (r *Machine) StandLocked(p *Entry) {
	if r.Mu.Holding == p && r.Descriptor().GetFrozen() != nil {
		r.Mu.Holding = &Entry{Standing: true, Waiters: p.Waiters}
		p.Waiters = nil
	}
}

// GoActive runs f in the pool, and counts it as a user of the replica.
func (r *Machine) GoActive(f func()) bool { return r.goIn(r.Node.Pool, f) }

// GoLong runs f in the pool for long reads, and counts it as a user of the replica.
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

// heldMost bounds the answers that a partition holds back. The clients of further ones are told
// that the outcome is unknown.
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

// Send answers a request, now or when every clock has passed Answer.Hold.
func (r *Machine) Send(a *Answer) {
	if a.Hold.IsZero() || r.Passed(a.Hold) {
		r.Reply(a.Pending, a.Command, a.Response)
		return
	}
	a.Pending.Timing.Enter(timing.Clock)
	if h := (&heldAnswer{*a, r}); !r.HeldAnswers.Hold(a.Hold, h) {
		h.Refuse()
	}
}

// WaitsNoMore subtracts reads that no longer wait.
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
	r.Node.Answer(&p, c, response)
}

package host

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// maxInboxBytes bounds what peers can queue for one group. What comes beyond is dropped, and sent
// again by Raft.
const maxInboxBytes = 16 << 20

// maxInboxReads bounds the read-index requests that wait in one inbox.
const maxInboxReads = 100_000

// Group is the handle of one group on this host. Its exported methods may be called from any
// goroutine.
type Group struct {
	host      *Host
	shard     *shard
	id        keys.PartitionID
	self      keys.ReplicaID
	identity  raftlog.Identity
	restarted bool
	// founded is the configuration of a state machine that says nothing of it.
	founded group.Configuration
	// addresses say on which host each replica is. learning guards its changes, and counted: whether
	// those hosts are counted as peers.
	addresses atomic.Pointer[map[keys.ReplicaID]uint64]
	learning  sync.Mutex
	counted   bool

	storage *raftlog.Group
	machine group.StateMachine
	lease   *group.Lease

	leadership atomic.Pointer[group.Leadership]
	applied    atomic.Uint64
	committed  atomic.Uint64
	lastEntry  lastEntry
	failure    atomic.Pointer[error]
	// replacing counts the snapshots that are installed and that the log does not follow yet: their
	// appends, which delete all entries, are on their way.
	replacing atomic.Int32
	// stirring is what awake is, for other goroutines.
	stirring atomic.Bool

	// Of the shard worker alone.
	core  *group.Group
	awake bool
	steps struct {
		// installations are the snapshots that Raft accepted and that are not installed yet, oldest
		// first. All appends since then wait with them.
		installations []*installation
		// installed is the index of the last snapshot that Raft accepted: it brought what changed up to
		// there.
		installed uint64
		// kept is what the log keeps for followers that were sent a snapshot.
		kept map[keys.ReplicaID]keptFor
		// failures are of snapshots to followers.
		failures map[keys.ReplicaID]snapshotFailures
		readSeq  uint64
		reads    []readBatch // sent to Raft, by ascending sequence
	}

	inbox   inbox
	tasks   taskQueue
	waiting readWaiters
	// work counts appends and tasks in flight. An append that waits for an installation is given
	// back by what ends that: installed submits it, shutDown drops it.
	work sync.WaitGroup
	// stopped is closed at the end of shutDown.
	stopped chan struct{}
	// ctx is of snapshots on their way to followers; shutDown cancels it.
	ctx    context.Context
	cancel context.CancelFunc
}

type proposal struct {
	term uint64
	data []byte
	// change, if not nil, is the configuration that this leads to.
	change *group.Configuration
}

// inbox is what a group still has to take in.
type inbox struct {
	mu        sync.Mutex
	messages  []*peerpb.RaftMessage
	bytes     int
	local     []*raftpb.Message
	changes   []changed
	proposals []proposal
	reads     []func(error)
	ops       []func(*Group)
	// staged are the snapshots whose messages are among messages, or in the pass under way;
	// installing is how many more there are that Raft accepted and that are not installed yet.
	staged     []stagedWith
	installing int
	queued     bool
	stopped    bool
}

// ID returns the group's id.
func (g *Group) ID() keys.PartitionID { return g.id }

// Self returns this replica's id.
func (g *Group) Self() keys.ReplicaID { return g.self }

// Identity returns what is on disk about this replica.
func (g *Group) Identity() raftlog.Identity { return g.identity }

// Leader returns the leader, as far as this replica knows (0: none is known), and the term.
func (g *Group) Leader() (keys.ReplicaID, uint64) {
	l := g.leadership.Load()
	return l.Leader, l.Term
}

// Lease says whether this replica leads and its lease stands at this moment.
func (g *Group) Lease() (term uint64, ok bool) {
	if term, ok = g.lease.Valid(g.host.now()); !ok || !g.leaseCounts() {
		return 0, false
	}
	return term, true
}

// LeaseLeft is how much longer the lease stands; not positive if it does not stand.
func (g *Group) LeaseLeft() time.Duration {
	left := g.lease.Left(g.host.now())
	if left > 0 && !g.leaseCounts() {
		return 0
	}
	return left
}

// leaseCounts says whether the monotonic clock has gone on since the lease began, as far as is
// known, but for less than the lease has to spare.
func (g *Group) leaseCounts() bool {
	from, ok := g.host.clocks.LeaseFloor()
	return ok && (from == 0 || g.lease.Left(from) > g.host.config.leaseDuration())
}

// Awake says whether the group does anything at present, but sleep.
func (g *Group) Awake() bool { return g.stirring.Load() }

// Applied returns the last applied index.
func (g *Group) Applied() uint64 { return g.applied.Load() }

// Committed is up to where this replica knows the log to be committed. A leader knows it before the
// followers do.
func (g *Group) Committed() uint64 { return max(g.committed.Load(), g.applied.Load()) }

// Failed returns why the group failed, or nil.
func (g *Group) Failed() error {
	if p := g.failure.Load(); p != nil {
		return *p
	}
	return nil
}

func (g *Group) appliedState() raftlog.Applied {
	e := &g.lastEntry
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Applied
}

// setApplied says what is applied; conf is nil if the configuration is what it was.
func (g *Group) setApplied(index, term uint64, conf *group.Configuration) {
	e := &g.lastEntry
	e.mu.Lock()
	e.Index, e.Term = index, term
	if conf != nil {
		e.Configuration = conf.ConfState()
	}
	e.mu.Unlock()
	g.applied.Store(index)
	g.waiting.advance(index)
}

// lastEntry is the last one that is applied.
type lastEntry struct {
	mu sync.Mutex
	raftlog.Applied
}

// put changes the inbox and has the shard worker look at it; false if the group is stopped.
func (g *Group) put(change func(*inbox)) bool {
	g.inbox.mu.Lock()
	if g.inbox.stopped {
		g.inbox.mu.Unlock()
		return false
	}
	change(&g.inbox)
	schedule := !g.inbox.queued
	g.inbox.queued = true
	g.inbox.mu.Unlock()
	if schedule {
		g.shard.enqueue(g)
	}
	return true
}

// Propose queues data to be appended to the log, in the order of the calls, if this replica still
// leads at term by then; otherwise it is dropped, and LeadershipChanged tells of it. The data
// belongs to the group from here on. The caller may find itself stepping the group and others, with
// their callbacks, and must hold no lock that those want.
func (g *Group) Propose(term uint64, data []byte) error {
	g.inbox.mu.Lock()
	if g.inbox.stopped {
		g.inbox.mu.Unlock()
		return ErrStopped
	}
	g.inbox.proposals = append(g.inbox.proposals, proposal{term: term, data: data})
	schedule := !g.inbox.queued
	g.inbox.queued = true
	g.inbox.mu.Unlock()
	if schedule {
		g.shard.leave(g)
		g.host.step(g.shard)
	}
	return nil
}

// ProposeInPass is Propose for a caller that proposes to other groups as well, and has all of them
// stepped together when it has: it calls Host.Step for this group soon. Whatever else has the group
// stepped meanwhile, another proposal or a message, takes along what is there.
func (g *Group) ProposeInPass(term uint64, data []byte) error {
	g.inbox.mu.Lock()
	defer g.inbox.mu.Unlock()
	if g.inbox.stopped {
		return ErrStopped
	}
	g.inbox.proposals = append(g.inbox.proposals, proposal{term: term, data: data})
	return nil
}

// ProposeChange is Propose for an entry that changes the configuration: it is next when the state
// machine has applied the data. One that is not a step away, or would leave this replica out, ends
// the leadership; the caller has seen to it before (group.Configuration.CanBecome).
func (g *Group) ProposeChange(term uint64, data []byte, next group.Configuration) error {
	if !g.put(func(in *inbox) {
		in.proposals = append(in.proposals, proposal{term, data, &next})
	}) {
		return ErrStopped
	}
	return nil
}

// stir queues the group if there are proposals of a pass that are not stepped; false if not.
func (g *Group) stir() bool {
	g.inbox.mu.Lock()
	if g.inbox.stopped || g.inbox.queued || len(g.inbox.proposals) == 0 {
		g.inbox.mu.Unlock()
		return false
	}
	g.inbox.queued = true
	g.inbox.mu.Unlock()
	g.shard.leave(g)
	return true
}

// ReadIndex calls done(nil) once the local state has applied everything that was committed anywhere
// when ReadIndex was called, or with an error if that cannot be shown. done runs on an apply worker
// (or, with an error, on any goroutine, the caller's included) and must not block for long.
func (g *Group) ReadIndex(done func(error)) {
	full := false
	ok := g.put(func(in *inbox) {
		if full = len(in.reads) >= maxInboxReads; !full {
			in.reads = append(in.reads, done)
		}
	})
	if !ok {
		done(ErrStopped)
	} else if full {
		done(ErrOverloaded)
	}
}

// Wake wakes a sleeping group because there is something to do. A replica without a leader
// campaigns.
func (g *Group) Wake() { g.do(func(g *Group) { g.core.Wake() }) }

// Campaign makes this replica try to lead.
func (g *Group) Campaign() { g.do(func(g *Group) { g.core.Campaign() }) }

// CampaignAgain is Campaign for a replica that tries again and again: an election in which votes
// are counted goes on.
func (g *Group) CampaignAgain() { g.do(func(g *Group) { g.core.CampaignAgain() }) }

// TransferLeader gives up the lease and the leadership of a term, if that is the present one, and
// asks another replica to lead. What was proposed before is in the log before; what comes later is
// refused until it is decided which replica leads.
func (g *Group) TransferLeader(term uint64, to keys.ReplicaID) {
	g.do(func(g *Group) { g.core.TransferLeader(term, to) })
}

// Resign gives up the lease and the leadership of a term, if that is the present one, and asks
// another replica to lead when the lease would have ended.
func (g *Group) Resign(term uint64, to keys.ReplicaID) {
	g.do(func(g *Group) { g.core.Resign(term, to) })
}

// do runs op on the shard worker.
func (g *Group) do(op func(*Group)) bool {
	return g.put(func(in *inbox) { in.ops = append(in.ops, op) })
}

// Followers reports the followers' progress, asynchronously; nil if this replica does not lead.
func (g *Group) Followers(report func(map[keys.ReplicaID]group.Progress)) {
	ok := g.do(func(g *Group) {
		if !g.core.Leadership().IsLeader {
			report(nil)
			return
		}
		found := make(map[keys.ReplicaID]group.Progress)
		g.core.Followers(func(id keys.ReplicaID, p group.Progress) { found[id] = p })
		report(found)
	})
	if !ok {
		report(nil)
	}
}

// stopAndWait lets nothing more in and waits for what is in flight. Its op may be dropped by a
// failure that stops the group before it.
func (g *Group) stopAndWait() {
	g.do((*Group).shutDown)
	<-g.stopped
	g.hurry()
	g.work.Wait()
}

// shutDown empties the inbox for good, and gives back the appends that wait for an installation:
// nothing submits them any more. It runs on the shard worker, or after that has stopped; nothing is
// added to the group's work after it.
func (g *Group) shutDown() {
	g.inbox.mu.Lock()
	already := g.inbox.stopped
	g.inbox.stopped = true
	reads, staged := g.inbox.reads, g.inbox.staged
	g.host.inboxBytes.Add(-int64(g.inbox.bytes))
	g.inbox.bytes = 0
	g.inbox.messages, g.inbox.local, g.inbox.proposals, g.inbox.changes = nil, nil, nil, nil
	g.inbox.reads, g.inbox.ops, g.inbox.staged = nil, nil, nil
	g.inbox.mu.Unlock()
	if already {
		return
	}
	defer close(g.stopped)
	g.cancel()
	for _, s := range staged {
		s.Discard()
	}
	for _, in := range g.steps.installations {
		g.work.Add(-1 - len(in.held))
	}
	g.steps.installations = nil
	for _, done := range reads {
		done(ErrStopped)
	}
	g.failReads(ErrStopped)
	if g.awake {
		g.shard.setAwake(g, false)
	}
	if l := g.leadership.Load(); l.IsLeader || l.Leader != 0 {
		gone := group.Leadership{Term: l.Term}
		g.leadership.Store(&gone)
		g.machine.LeadershipChanged(gone)
	}
}

// fail marks the group failed. It runs on the shard worker.
func (g *Group) fail(err error) {
	if !g.failure.CompareAndSwap(nil, &err) {
		return
	}
	attributes := []any{"partition", g.id, "replica", g.self, "error", err}
	if p := new(panicError); errors.As(err, &p) {
		attributes = append(attributes, "stack", string(p.stack))
	}
	g.host.config.Logger.Error("replica failed", attributes...)
	g.host.metrics.failed.Inc()
	g.shutDown()
	if f := g.host.config.OnFailed; f != nil {
		f(g.id, err)
	}
}

// failFrom marks the group failed from any goroutine.
func (g *Group) failFrom(err error) {
	g.do(func(g *Group) { g.fail(err) })
}

// panicError is a panic as an error. Its text is for the client that asks why the replica does not
// serve; the stack is for the log.
type panicError struct {
	error
	stack []byte
}

// Unwrap gives what was panicked with.
func (e *panicError) Unwrap() error { return e.error }

// panicked makes an error of what a panic carried. A storage that failed comes out of Raft as a
// panic with its error.
func panicked(doing string, p any) error {
	invariants.Again(p)
	err, ok := p.(error)
	if ok {
		err = fmt.Errorf("%s: %w", doing, err)
	} else {
		err = fmt.Errorf("%s: %v", doing, p)
	}
	return &panicError{err, debug.Stack()}
}

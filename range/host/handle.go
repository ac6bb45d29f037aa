package host

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// Group is the handle of one group on this host. Its exported methods may be called from any
// goroutine.
type Group struct {
	host     *Host
	shard    *shard
	identity raftlog.Identity
	// founded is the configuration of a state machine that says nothing of it.
	founded group.Configuration
	addresses

	storage *raftlog.Group
	machine group.StateMachine
	closes  sleepCloser
	lease

	published
	steps
	inbox   inbox
	applier applier
	life
}

// steps is what only the shard worker may touch.
type steps struct {
	core *group.Group
	// restarted: the votes of the process before this one are forgotten, so this one withholds its
	// votes for a time.
	restarted bool
	awake     bool
	// installations are the snapshots that Raft accepted and that are not installed yet, oldest
	// first. All appends since then wait with them.
	installations []*installation
	// installed is the index of the last snapshot that Raft accepted: it brought what changed up to
	// there.
	installed uint64
	followers snapshotFollowers
	reads     indexReads
}

// life is what of a group is under way, and how the group ends.
type life struct {
	failure atomic.Pointer[error]
	// replacing counts the snapshots that are installed and that the log does not follow yet: their
	// appends, which delete all entries, are on their way.
	replacing atomic.Int32
	// work counts appends and tasks in flight. An append that waits for an installation is given
	// back by what ends that: afterInstall submits it, shutDown drops it.
	work sync.WaitGroup
	// stopped is closed at the end of shutDown.
	stopped chan struct{}
	// ctx is of snapshots on their way to followers; shutDown cancels it.
	ctx    context.Context
	cancel context.CancelFunc
}

// Failed returns why the group failed, or nil.
func (l *life) Failed() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// ID returns the group's id.
func (g *Group) ID() keys.PartitionID { return g.identity.Group }

// Self returns this replica's id.
func (g *Group) Self() keys.ReplicaID { return g.identity.Replica }

// Identity returns what is on disk about this replica.
func (g *Group) Identity() raftlog.Identity { return g.identity }

// put changes the inbox and has the shard worker look at it; false if the group is stopped.
func (g *Group) put(change func(*inbox)) bool {
	queue, ok := g.inbox.put(change)
	if queue {
		g.shard.enqueue(g)
	}
	return ok
}

// Propose queues data to be appended to the log, in the order of the calls, if this replica still
// leads at term by then; otherwise it is dropped, and LeadershipChanged tells of it. The data
// belongs to the group from here on. The caller may find itself stepping the group and others, with
// their callbacks, and must hold no lock that those want.
func (g *Group) Propose(term uint64, data []byte) error {
	queue, ok := g.inbox.propose(proposal{term: term, data: data}, false)
	if !ok {
		return ErrStopped
	}
	if queue {
		g.shard.leave(g)
		g.host.step(g.shard)
	}
	return nil
}

// ProposeInPass is Propose for a caller that proposes to other groups as well, and has all of them
// stepped together when it has: it calls Host.Step for this group soon. Whatever else has the group
// stepped meanwhile, another proposal or a message, takes along what is there.
func (g *Group) ProposeInPass(term uint64, data []byte) error {
	if _, ok := g.inbox.propose(proposal{term: term, data: data}, true); !ok {
		return ErrStopped
	}
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
	g.applier.queue.Hurry()
	g.work.Wait()
}

// shutDown empties the inbox for good, and gives back the appends that wait for an installation:
// nothing submits them any more. It runs on the shard worker, or after that has stopped; nothing is
// added to the group's work after it.
func (g *Group) shutDown() {
	left, staged, first := g.inbox.stop()
	if !first {
		return
	}
	defer close(g.stopped)
	g.cancel()
	for _, s := range staged {
		s.Discard()
	}
	for _, in := range g.installations {
		g.work.Add(-1 - len(in.held))
	}
	g.installations = nil
	for _, done := range left.reads {
		done(ErrStopped)
	}
	g.reads.fail(ErrStopped)
	g.waiting.fail(ErrStopped)
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
	attributes := []any{"partition", g.ID(), "replica", g.Self(), "error", err}
	if p := new(panicError); errors.As(err, &p) {
		attributes = append(attributes, "stack", string(p.stack))
	}
	g.host.config.Logger.Error("replica failed", attributes...)
	g.host.metrics.failed.Inc()
	g.shutDown()
	if f := g.host.config.OnFailed; f != nil {
		f(g.ID(), err)
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

func replicaID(id uint64) keys.ReplicaID { return keys.ReplicaID(id) }

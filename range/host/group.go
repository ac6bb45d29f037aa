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
	// founded is the configuration with which the group was founded, for state machines that do not
	// store one.
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
	logged  entryTimes
	life
}

// steps holds what only the shard worker may touch.
type steps struct {
	core *group.Group
	// restarted is set if the replica is older than this process. The votes of the former process
	// are forgotten, so this process withholds its votes for a time.
	restarted bool
	awake     bool
	// installations lists the snapshots that Raft has accepted and that are not installed yet,
	// oldest first. All later appends wait in them.
	installations []*installation
	// installed is the index of the last snapshot that Raft accepted. The snapshot contains all
	// changes of the configuration up to there.
	installed uint64
	followers snapshotFollowers
	reads     indexReads
}

// life counts a group's work in flight, and says how the group ends.
type life struct {
	failure atomic.Pointer[error]
	// replacing counts the installed snapshots whose append, which deletes all entries of the log,
	// is still on its way to the log.
	replacing atomic.Int32
	// work counts appends and tasks in flight. An append that waits for an installation is counted
	// until afterInstall submits it or shutDown drops it.
	work sync.WaitGroup
	// stopped is closed at the end of shutDown.
	stopped chan struct{}
	// ctx is the context of snapshot streams to followers; shutDown cancels it.
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

// Identity returns the replica's identity as stored on disk.
func (g *Group) Identity() raftlog.Identity { return g.identity }

// Storage is the group's log. It is open as long as the group is.
func (g *Group) Storage() *raftlog.Group { return g.storage }

// Configuration returns the group's replicas, as of the last entry applied here.
func (g *Group) Configuration() *group.Configuration { return g.core.Configuration() }

// isAway says whether the host of a replica is silent.
func (g *Group) isAway(id keys.ReplicaID) bool { return g.host.peers.Down(g.HostOf(id)) }

// put changes the inbox and has the shard worker look at it; false if the group is stopped.
func (g *Group) put(change func(*inbox)) bool {
	queue, ok := g.inbox.put(change)
	if queue {
		g.shard.enqueue(g)
	}
	return ok
}

// do runs op on the shard worker. It returns false if the group is stopped.
func (g *Group) do(op func(*Group)) bool {
	return g.put(func(in *inbox) { in.ops = append(in.ops, op) })
}

// shutDown empties the inbox for good, and drops the appends that wait for an installation, which
// nothing will submit any more. It runs on the shard worker, or after that worker has stopped.
// Nothing adds to the group's work afterwards.
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

// Unwrap returns the error that the panic carried.
func (e *panicError) Unwrap() error { return e.error }

// panicked makes an error of a panic's value. Raft panics with the storage's error if the storage
// fails.
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

package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// alone says that the command is evaluated with no write pending, and has an entry of its own: it
// reads more of the engine than pending writes can be looked up for.
func (w *write) alone() bool {
	if w.internal != nil {
		return !w.internal.shared
	}
	return w.command.IsAlone(w.pending.Request)
}

// thaws says that the command ends the freeze of the partition.
func (w *write) thaws() bool { return w.internal != nil && w.internal.thaws }

// Size is about how many bytes it adds to an entry.
func (w write) Size() int { return w.size }

// writeBuffers are shared by the queues of all replicas.
var writeBuffers proposal.Buffers[write]

// transaction is the write's; the zero Info: it has none.
func (w *write) transaction() txn.Info {
	if w.x == nil {
		return txn.Info{}
	}
	return w.x.Info
}

// conflict is what the write waited for last; nil: it has not waited.
func (w *write) conflict() *kvpb.Conflict {
	if w.x == nil {
		return nil
	}
	return w.x.history.Conflict
}

func (w *write) requestID() mvcc.RequestID {
	return mvcc.RequestID{Client: w.pending.Client, Sequence: w.pending.Request.Sequence}
}

// waitKind is what the write is to the concurrency manager.
func (w *write) waitKind() concurrency.Kind {
	switch {
	case w.command.EndsLocks:
		return concurrency.Resolve
	case w.command != command.Prepare:
		return concurrency.Plain
	case w.pending.Request.GetPrepare().GetOnePhase() != nil:
		return concurrency.Commit
	}
	return concurrency.Acquire
}

// mayDoNothing says that the command can be answered, for good, without having written anything.
func (w *write) mayDoNothing() bool {
	return w.internal == nil && w.command.CanDoNothing(w.pending.Request)
}

// hurried says that others may wait for the write: it acquires volatile locks, or ends them. It is
// evaluated even if it cannot be proposed yet.
func (w *write) hurried() bool {
	return w.internal == nil && w.command.IsHurried(w.pending.Request)
}

// light says that a write that has waited wants nothing but volatile locks.
func (w *write) light() bool { return w.pending.Request.GetPrepare().GetVolatile() }

// since is the timestamp above which all versions are that an attempt of the request can have
// written.
func (w *write) since(r *machine.Machine) hlc.Timestamp {
	if w.session.IsZero() {
		return r.Threshold()
	}
	return w.session
}

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

// alone reports that the command is evaluated with no write pending, and has an entry of its own:
// it reads more of the engine than can be looked up among the pending writes.
func (w *write) alone() bool {
	if w.internal != nil {
		return !w.internal.shared
	}
	return w.command.IsAlone(w.pending.Request)
}

// thaws reports that the command ends the freeze of the partition.
func (w *write) thaws() bool { return w.internal != nil && w.internal.thaws }

// Size estimates how many bytes the write adds to an entry.
func (w write) Size() int { return w.size }

// writeBuffers is shared by the queues of all replicas.
var writeBuffers proposal.Buffers[write]

// transaction returns the write's transaction; the zero Info if it has none.
func (w *write) transaction() txn.Info {
	if w.x == nil {
		return txn.Info{}
	}
	return w.x.Info
}

// conflict returns what the write waited for last; nil if it has not waited.
func (w *write) conflict() *kvpb.Conflict {
	if w.x == nil {
		return nil
	}
	return w.x.history.Conflict
}

func (w *write) requestID() mvcc.RequestID {
	return mvcc.RequestID{Client: w.pending.Client, Sequence: w.pending.Request.Sequence}
}

// waitKind says how the concurrency manager treats the write.
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

// mayDoNothing reports that the command may be answered, for good, without writing anything.
func (w *write) mayDoNothing() bool {
	return w.internal == nil && w.command.CanDoNothing(w.pending.Request)
}

// hurried reports that others may wait for the write, because it acquires or releases volatile
// locks. It is evaluated even if it cannot be proposed yet.
func (w *write) hurried() bool {
	return w.internal == nil && w.command.IsHurried(w.pending.Request)
}

// light reports that a write that has waited wants only volatile locks.
func (w *write) light() bool { return w.pending.Request.GetPrepare().GetVolatile() }

// since returns a timestamp below all versions that an attempt of the request can have written.
func (w *write) since(r *machine.Machine) hlc.Timestamp {
	if w.session.IsZero() {
		return r.Threshold()
	}
	return w.session
}

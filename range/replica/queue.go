package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// write is one queued command: a client's, or one of this package's own.
type write struct {
	pending config.Pending
	command *command.Command
	session hlc.Timestamp
	// size is about how many bytes it adds to an entry.
	size int
	// x is set if it has to do with transactions, its own or others'.
	x *transactional
	// internal is set instead of pending for a command of this package's own.
	internal *internalCommand
}

// internalCommand is evaluated in its turn, like a client's.
type internalCommand struct {
	kind proposal.Kind
	// shared: it may share an entry, of proposal.KindTransaction, with others, and be evaluated
	// with writes pending.
	shared bool
	// thaws: it ends the freeze of the partition, and is evaluated although that lasts, before all
	// that waits for that.
	thaws bool
	// evaluate fills the evaluation's batch, delta and so on. It returns false, after which done is
	// not called, if there is nothing to propose.
	evaluate func(e *evaluation, p *proposal.Entry) (propose bool, err error)
	// done is called once: after the entry has been applied, or with the reason why it was not.
	done func(error)
}

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

// expired says that the client does not wait for the answer any more.
func expired(p *config.Pending, now time.Time) bool {
	t := p.Request.GetTimeoutMicros()
	return t != 0 && t < uint64(1<<62)/1000 && now.Sub(p.Arrived) > time.Duration(t)*time.Microsecond
}

// Size is about how many bytes it adds to an entry.
func (w write) Size() int { return w.size }

// writeBuffers are shared by the queues of all replicas.
var writeBuffers proposal.Buffers[write]

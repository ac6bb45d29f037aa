package replica

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// write is one queued command: a client's, or one of this package's own.
type write struct {
	pending Pending
	command command
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
	// shared: it may share an entry, of proposal.KindTransaction, with others, and be evaluated with something in flight.
	shared bool
	// evaluate fills the evaluation's batch, delta and so on. It returns false, after which done is not called, if there is nothing to propose.
	evaluate func(e *evaluation, p *proposal.Entry) (propose bool, err error)
	// done is called once: after the entry has been applied, or with the reason why it was not.
	done func(error)
}

// alone says that the command is evaluated with nothing in flight, and has an entry of its own: it reads more of the engine than
// an overlay can be laid over.
func (w *write) alone() bool {
	if w.internal != nil {
		return !w.internal.shared
	}
	return w.command == commandDeleteRange || w.command == commandPrepare && len(w.pending.Request.GetPrepare().GetOnePhase().GetReads().GetSpans()) > 0
}

// expired says that nobody waits for the answer any more.
func expired(p *Pending, now time.Time) bool {
	t := p.Request.GetTimeoutMicros()
	return t != 0 && t < uint64(1<<62)/1000 && now.Sub(p.Arrived) > time.Duration(t)*time.Microsecond
}

// writeQueue is first in, first out. The zero queue is empty.
type writeQueue struct {
	writes []write
	// head is the index of the first.
	head  int
	bytes int
}

func (q *writeQueue) len() int { return len(q.writes) - q.head }

func (q *writeQueue) first() *write { return &q.writes[q.head] }

func (q *writeQueue) push(w write) {
	if q.head > 64 && q.head > len(q.writes)/2 {
		n := copy(q.writes, q.writes[q.head:])
		clear(q.writes[n:])
		q.writes, q.head = q.writes[:n], 0
	}
	if q.writes == nil {
		q.writes = *writeBuffers.Get().(*[]write)
	}
	q.writes = append(q.writes, w)
	q.bytes += w.size
}

// pushFront puts writes before all others.
func (q *writeQueue) pushFront(writes []write) {
	rest := q.writes[q.head:]
	all := make([]write, 0, len(writes)+len(rest))
	all = append(append(all, writes...), rest...)
	clear(q.writes)
	q.writes, q.head = all, 0
	for i := range writes {
		q.bytes += writes[i].size
	}
}

// pop moves the first one to dst.
func (q *writeQueue) pop(dst []write) []write {
	w := &q.writes[q.head]
	q.bytes -= w.size
	dst = append(dst, *w)
	*w = write{}
	if q.head++; q.head == len(q.writes) {
		q.reset()
	}
	return dst
}

// drain empties the queue.
func (q *writeQueue) drain() []write {
	all := append([]write(nil), q.writes[q.head:]...)
	clear(q.writes)
	q.reset()
	return all
}

// retainedWrites is up to how many writes an empty queue keeps room for: idle partitions keep next to nothing. Larger
// buffers are shared by all queues.
const retainedWrites = 4

var writeBuffers = sync.Pool{New: func() any { return new([]write) }}

func (q *writeQueue) reset() {
	q.head, q.bytes = 0, 0
	q.writes = q.writes[:0]
	if cap(q.writes) > retainedWrites {
		buffer := q.writes
		writeBuffers.Put(&buffer)
		q.writes = nil
	}
}

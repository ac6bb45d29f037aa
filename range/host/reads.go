package host

import (
	"encoding/binary"
	"sync"

	"go.etcd.io/raft/v3"

	"github.com/tidemarkdb/tidemark/range/group"
)

// readBatch is a set of read-index requests that one question to Raft answers.
type readBatch struct {
	sequence uint64
	done     []func(error)
	ticks    int
}

// indexReads are the requests for a read index that Raft has not answered. Only the shard worker
// may touch them.
type indexReads struct {
	// sequence is the number of the last question to Raft. asked lists the questions under way, by
	// ascending sequence.
	sequence uint64
	asked    []readBatch
}

// ask asks Raft for one read index, for all requests that came since the last pass.
func (r *indexReads) ask(core *group.Group, reads []func(error)) {
	if !core.Leadership().IsLeader {
		for _, done := range reads {
			done(ErrNotLeader)
		}
		return
	}
	r.sequence++
	r.asked = append(r.asked, readBatch{sequence: r.sequence, done: reads})
	core.ReadIndex(binary.BigEndian.AppendUint64(nil, r.sequence))
}

// answered takes Raft's answer: the reads may run once that index is applied. Raft answers in
// order, and an answer also answers all earlier questions. answered returns false if no question
// under way has this number.
func (r *indexReads) answered(s raft.ReadState, waiting *readWaiters) bool {
	if len(s.RequestCtx) != 8 {
		return false
	}
	sequence := binary.BigEndian.Uint64(s.RequestCtx)
	for len(r.asked) > 0 && r.asked[0].sequence <= sequence {
		waiting.add(s.Index, r.asked[0].done)
		r.asked = r.asked[1:]
	}
	if len(r.asked) == 0 {
		r.asked = nil
	}
	return true
}

// expire is called at ticks. It fails the reads that no quorum has answered for this many ticks.
func (r *indexReads) expire(ticks int) {
	for i := range r.asked {
		r.asked[i].ticks++
	}
	for len(r.asked) > 0 && r.asked[0].ticks > ticks {
		for _, done := range r.asked[0].done {
			done(ErrTimeout)
		}
		r.asked = r.asked[1:]
	}
}

// fail ends all reads with an error.
func (r *indexReads) fail(err error) {
	asked := r.asked
	r.asked = nil
	for _, b := range asked {
		for _, done := range b.done {
			done(err)
		}
	}
}

// readWaiters holds reads whose index is known and not applied yet.
type readWaiters struct {
	mu      sync.Mutex
	waiters []readWaiter
}

type readWaiter struct {
	index uint64
	done  []func(error)
}

func (w *readWaiters) add(index uint64, done []func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters = append(w.waiters, readWaiter{index, done})
}

// advance runs the reads that waited for an index up to applied. Indexes are in ascending order, as
// Raft gives them out.
func (w *readWaiters) advance(applied uint64) {
	w.mu.Lock()
	n := 0
	for n < len(w.waiters) && w.waiters[n].index <= applied {
		n++
	}
	ready := w.waiters[:n:n]
	if w.waiters = w.waiters[n:]; len(w.waiters) == 0 {
		w.waiters = nil
	}
	w.mu.Unlock()
	for _, r := range ready {
		for _, done := range r.done {
			done(nil)
		}
	}
}

func (w *readWaiters) fail(err error) {
	w.mu.Lock()
	waiters := w.waiters
	w.waiters = nil
	w.mu.Unlock()
	for _, r := range waiters {
		for _, done := range r.done {
			done(err)
		}
	}
}

package host

import (
	"encoding/binary"
	"sync"

	"go.etcd.io/raft/v3"

	"github.com/tidemarkdb/tidemark/range/keys"
)

func replicaID(id uint64) keys.ReplicaID { return keys.ReplicaID(id) }

// readBatch is the read-index requests that were asked of Raft together.
type readBatch struct {
	sequence uint64
	done     []func(error)
	ticks    int
}

// startReads asks Raft for one read index for all requests that came since the last pass.
func (g *Group) startReads(reads []func(error)) {
	if !g.core.Leadership().IsLeader {
		for _, done := range reads {
			done(ErrNotLeader)
		}
		return
	}
	g.steps.readSeq++
	g.steps.reads = append(g.steps.reads, readBatch{sequence: g.steps.readSeq, done: reads})
	g.core.ReadIndex(binary.BigEndian.AppendUint64(nil, g.steps.readSeq))
}

// readIndexKnown takes Raft's answer: the reads may run once that index is applied. Raft answers in
// order, and one answer stands for all requests before it.
func (g *Group) readIndexKnown(r raft.ReadState) {
	if len(r.RequestCtx) != 8 {
		return
	}
	sequence := binary.BigEndian.Uint64(r.RequestCtx)
	for len(g.steps.reads) > 0 && g.steps.reads[0].sequence <= sequence {
		g.waiting.add(r.Index, g.steps.reads[0].done)
		g.steps.reads = g.steps.reads[1:]
	}
	if len(g.steps.reads) == 0 {
		g.steps.reads = nil
	}
	// An apply worker looks whether the index is applied already: the readers' work is not this
	// worker's.
	g.work.Add(1)
	g.enqueueTask(task{run: func() { g.waiting.advance(g.applied.Load()) }})
}

// expireReads gives up reads that no quorum answered for two election timeouts.
func (g *Group) expireReads() {
	for i := range g.steps.reads {
		g.steps.reads[i].ticks++
	}
	for len(g.steps.reads) > 0 && g.steps.reads[0].ticks > 2*g.host.config.ElectionTicks {
		for _, done := range g.steps.reads[0].done {
			done(ErrTimeout)
		}
		g.steps.reads = g.steps.reads[1:]
	}
}

func (g *Group) failReads(err error) {
	reads := g.steps.reads
	g.steps.reads = nil
	for _, b := range reads {
		for _, done := range b.done {
			done(err)
		}
	}
	if err == ErrStopped {
		g.waiting.fail(err)
	}
}

// readWaiters are reads whose index is known and not applied yet.
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

// advance runs what waited for an index up to applied. Indexes ascend, as Raft gives them out.
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

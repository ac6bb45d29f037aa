package raftlog

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Append is what one group wants stored. The log owns it from Submit until OnAppended.
type Append struct {
	Group *Group
	// HardState is nil when it did not change.
	HardState *raftpb.HardState
	// Entries replace everything in the log from the first one's index on.
	Entries []*raftpb.Entry
	// Snapshot, when not zero, replaces the whole log: its index is the last index that the
	// snapshot covers. The state machine has installed that snapshot durably before the append is
	// submitted.
	Snapshot struct{ Index, Term uint64 }
	// Context is for the submitter's use.
	Context any
	// Writing is when the log began to write the append. The log sets it before OnAppended.
	Writing time.Time

	bytes int
}

// needsDisk reports whether the append must be on disk before it is reported. A commit index alone
// need not be: it is found again from the other replicas, and from what was applied. Called on the
// append worker.
func (a *Append) needsDisk() bool {
	if len(a.Entries) > 0 || a.Snapshot.Index != 0 {
		return true
	}
	return a.HardState != nil && (a.HardState.GetTerm() != a.Group.writtenTerm ||
		a.HardState.GetVote() != a.Group.writtenVote)
}

func (a *Append) size() int {
	n := 64
	for _, e := range a.Entries {
		n += 64 + len(e.GetData())
	}
	return n
}

// Submit queues appends; those of one group are stored in the order in which they were submitted.
// It does not block. The caller keeps the slice.
func (l *Log) Submit(appends []*Append) {
	if len(appends) == 0 {
		return
	}
	bytes := 0
	for _, a := range appends {
		a.bytes = a.size()
		bytes += a.bytes
	}
	l.mu.Lock()
	closed := l.mu.closed
	if !closed {
		l.pending.Add(int64(bytes))
		l.mu.pending = append(l.mu.pending, appends...)
	}
	l.mu.Unlock()
	if closed {
		return // no caller waits for an answer from a closed log
	}
	l.wake.Signal()
}

// run is the append worker.
func (l *Log) run() {
	defer l.worker.Done()
	var taken []*Append
	batch := l.db.NewBatch()
	defer func() { batch.Close() }()
	var failed error
	for {
		l.mu.Lock()
		for len(l.mu.pending) == 0 && !l.mu.closed {
			l.wake.Wait()
		}
		if l.mu.closed {
			rest := l.mu.pending
			l.mu.pending = nil
			l.mu.Unlock()
			if len(rest) > 0 {
				l.options.OnAppended(rest, ErrClosed)
			}
			return
		}
		taken, l.mu.pending = l.mu.pending, taken[:0]
		l.mu.Unlock()

		for rest := taken; len(rest) > 0; {
			n, bytes := 0, 0
			for n < len(rest) && (n == 0 || bytes+rest[n].bytes <= l.options.MaxBatchBytes) {
				bytes += rest[n].bytes
				n++
			}
			if failed == nil {
				// After a failed write nothing more is written, because the contents of the disk
				// are unknown.
				failed = l.write(batch, rest[:n])
			}
			l.options.OnAppended(rest[:n], failed)
			l.pending.Add(-int64(bytes))
			rest = rest[n:]
		}
		clear(taken)
		if cap(taken) > 4096 {
			taken = nil
		}
	}
}

// write stores appends with one sync, and then shows their entries to readers.
func (l *Log) write(batch *engine.LogBatch, appends []*Append) error {
	batch.Reset()
	start := time.Now()
	entries := 0
	for _, a := range appends {
		a.Writing = start
		if !a.needsDisk() {
			continue
		}
		if err := a.encode(batch); err != nil {
			return fmt.Errorf("group %s: encoding an append: %w", a.Group.id, err)
		}
		entries += len(a.Entries)
	}
	size := batch.Len()
	if !batch.Empty() {
		began := l.options.Monotonic()
		l.writing.Store(began)
		err := l.db.Commit(batch, true)
		l.writing.Store(notWriting)
		l.syncNanos.Add(l.options.Monotonic() - began)
		l.synced.Add(1)
		if err != nil {
			return fmt.Errorf("writing the raft log: %w", err)
		}
	}
	for _, a := range appends {
		a.Group.appended(a)
	}
	if entries == 0 {
		return nil
	}
	l.metrics.batches.Inc()
	l.metrics.appends.Add(float64(len(appends)))
	l.metrics.entries.Add(float64(entries))
	l.metrics.bytes.Add(float64(size))
	l.metrics.batchAppends.Observe(float64(len(appends)))
	l.metrics.syncSeconds.Observe(time.Since(start).Seconds())
	return nil
}

// encode adds the append to a batch. A batch may hold several appends of one group: later ones see
// the effect of earlier ones through the group's written bounds, which only the append worker
// touches.
func (a *Append) encode(batch *engine.LogBatch) error {
	g := a.Group
	if invariants.Enabled {
		a.checkInvariants()
	}
	if a.Snapshot.Index != 0 {
		if err := batch.DeleteRange(appendEntryKey(nil, g.id, 0),
			appendGroupKey(nil, g.id, kindEntry+1), nil); err != nil {
			return err
		}
		t := truncation{a.Snapshot.Index, a.Snapshot.Term}
		if err := batch.Set(appendGroupKey(nil, g.id, kindTruncated), encodeTruncation(t),
			nil); err != nil {
			return err
		}
		g.written = t.index
	}
	if n := len(a.Entries); n > 0 {
		first, last := a.Entries[0].GetIndex(), a.Entries[n-1].GetIndex()
		if first <= g.written {
			// A new leader overwrote the tail.
			if err := batch.DeleteRange(appendEntryKey(nil, g.id, first),
				appendEntryKey(nil, g.id, g.written+1), nil); err != nil {
				return err
			}
		}
		for _, e := range a.Entries {
			op := batch.SetDeferred(entryKeyLength, entrySize(e))
			appendEntryKey(op.Key[:0], g.id, e.GetIndex())
			appendEntry(op.Value[:0], e)
			if err := op.Finish(); err != nil {
				return err
			}
		}
		g.written = last
	}
	if a.HardState != nil {
		g.writtenTerm, g.writtenVote = a.HardState.GetTerm(), a.HardState.GetVote()
		return batch.Set(appendGroupKey(nil, g.id, kindHardState), encodeHardState(a.HardState),
			nil)
	}
	return nil
}

// checkInvariants checks an append against what was written before: entries have no gap, their
// terms ascend, and so do the terms of the hard state, each with one vote.
func (a *Append) checkInvariants() {
	g, last := a.Group, a.Group.written
	if a.Snapshot.Index != 0 {
		last = a.Snapshot.Index
	}
	term := a.Snapshot.Term
	for i, e := range a.Entries {
		invariants.Check(e.GetIndex() > 0 && (i == 0 && e.GetIndex() <= last+1 ||
			i > 0 && e.GetIndex() == a.Entries[i-1].GetIndex()+1),
			"group %s: entry %d is written as number %d of an append to a log that ends at %d", g.id,
			e.GetIndex(), i, last)
		invariants.Check(e.GetTerm() >= term, "group %s: entry %d is of term %d, and follows term %d",
			g.id, e.GetIndex(), e.GetTerm(), term)
		term = e.GetTerm()
	}
	if hard := a.HardState; hard != nil {
		invariants.Check(hard.GetTerm() > g.writtenTerm || hard.GetTerm() == g.writtenTerm &&
			(g.writtenVote == 0 || hard.GetVote() == g.writtenVote),
			"group %s: term %d with a vote for %x follows term %d with a vote for %x", g.id,
			hard.GetTerm(), hard.GetVote(), g.writtenTerm, g.writtenVote)
	}
}

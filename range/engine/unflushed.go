package engine

import "sync/atomic"

// unflushed counts what was committed and is in no table yet: a flush will write about as much.
//
// Pebble says how much a flush takes by the memory of its memtables, which is at least what was
// committed to them, and says nothing of what the next memtable has already. So what a flush has
// taken is that much, but no more than was committed when it began, and no less than what was
// committed when the one before began: that was in the memtables of one of the two.
type unflushed struct {
	committed atomic.Int64
	// flushed is how much of committed is in tables.
	flushed atomic.Int64

	// Of the flush under way, or the last one; Pebble runs one at a time. begun is how much was
	// committed when it began, takes what will be flushed at its end, and before is begun of the
	// last one that succeeded.
	begun, takes, before atomic.Int64
}

func (u *unflushed) commit(bytes int) { u.committed.Add(int64(bytes)) }

// begin is told of a flush of memtables that take so much memory.
func (u *unflushed) begin(memory uint64) {
	committed := u.committed.Load()
	u.begun.Store(committed)
	u.takes.Store(max(u.before.Load(), min(committed, u.flushed.Load()+int64(memory))))
}

// end is told that the flush has succeeded.
func (u *unflushed) end() {
	u.before.Store(u.begun.Load())
	u.flushed.Store(u.takes.Load())
}

func (u *unflushed) bytes() int64 { return max(0, u.committed.Load()-u.flushed.Load()) }

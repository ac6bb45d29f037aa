package engine

import "sync/atomic"

// unflushed estimates the committed bytes that are in no table yet. A flush will write about as
// many.
//
// Pebble reports the size of a flush as the memory of its memtables, which is at least what was
// committed to them, and does not report what the next memtable already holds. So a flush counts
// with that memory, but with no more than was committed when it began, and no less than was
// committed when the flush before it began: those bytes were in the memtables of one of the two.
type unflushed struct {
	committed atomic.Int64
	// flushed is how many of the committed bytes are in tables.
	flushed atomic.Int64

	// These describe the flush under way, or the last one; Pebble runs one at a time. begun is how
	// many bytes were committed when it began, takes how many will be flushed at its end, and
	// before is the begun of the last successful flush.
	begun, takes, before atomic.Int64
}

func (u *unflushed) commit(bytes int) { u.committed.Add(int64(bytes)) }

// begin notes the start of a flush of memtables that take this much memory.
func (u *unflushed) begin(memory uint64) {
	committed := u.committed.Load()
	u.begun.Store(committed)
	u.takes.Store(max(u.before.Load(), min(committed, u.flushed.Load()+int64(memory))))
}

// end notes that the flush has succeeded.
func (u *unflushed) end() {
	u.before.Store(u.begun.Load())
	u.flushed.Store(u.takes.Load())
}

func (u *unflushed) bytes() int64 { return max(0, u.committed.Load()-u.flushed.Load()) }

package command

import "sync"

// The encoded rows of a page lie in a buffer that is used again when the page is answered: memory
// that was just used is in the processor's cache, and what a page takes from a large heap is not.
var rowBuffers = sync.Pool{New: func() any { return new([]byte) }}

// keepRows is the largest buffer that is kept, in bytes.
const keepRows = 256 << 10

// NewRows returns an empty buffer.
func NewRows() []byte {
	holder := rowBuffers.Get().(*[]byte)
	rows := *holder
	*holder = nil
	holders.Put(holder)
	return rows[:0]
}

// ReleaseRows takes a buffer back that nothing refers to any more. nil is none.
func ReleaseRows(rows []byte) {
	if cap(rows) == 0 || cap(rows) > keepRows {
		return
	}
	holder := holders.Get().(*[]byte)
	*holder = rows
	rowBuffers.Put(holder)
}

// holders are what rowBuffers is given, without their buffers: a slice in an interface is an
// allocation.
var holders = sync.Pool{New: func() any { return new([]byte) }}

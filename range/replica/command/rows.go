package command

import "sync"

// The encoded rows of a page lie in a buffer that is reused when the page has been answered:
// recently used memory is in the processor's cache, which new memory for a page would not be.
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

// ReleaseRows takes back a buffer to which nothing refers any more. nil is ignored.
func ReleaseRows(rows []byte) {
	if cap(rows) == 0 || cap(rows) > keepRows {
		return
	}
	holder := holders.Get().(*[]byte)
	*holder = rows
	rowBuffers.Put(holder)
}

// holders keeps the pointers of rowBuffers without their buffers, because a slice in an interface
// is an allocation.
var holders = sync.Pool{New: func() any { return new([]byte) }}

package tscache

import (
	"sync/atomic"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
)

// slotBytes is the size of a slot.
const slotBytes = int64(unsafe.Sizeof(hlc.Timestamp{}))

// Budget bounds the slots of many caches together. Each cache may have its first few slots whatever
// the budget says. It is safe for concurrent use.
type Budget struct {
	limit int64
	used  atomic.Int64 // slots
}

// NewBudget returns a budget of a number of bytes.
func NewBudget(bytes int64) *Budget { return &Budget{limit: bytes / slotBytes} }

// Bytes returns how many bytes the slots take.
func (b *Budget) Bytes() int64 { return b.used.Load() * slotBytes }

// take takes n slots from the budget, or none of them.
func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	if b.used.Add(int64(n)) > b.limit {
		b.used.Add(int64(-n))
		return false
	}
	return true
}

// force takes n slots even if the budget is used up.
func (b *Budget) force(n int) {
	if b != nil {
		b.used.Add(int64(n))
	}
}

func (b *Budget) give(n int) {
	if b != nil {
		b.used.Add(int64(-n))
	}
}

package bench

import (
	"sync"
	"sync/atomic"
)

// insertCounter assigns numbers to new records, and knows the number below which all inserts have
// been answered. Only those records may be read: a read of another record would race with its
// insert.
type insertCounter struct {
	next atomic.Uint64
	low  atomic.Uint64 // all lower numbers have been answered

	mu struct {
		sync.Mutex
		// done has the answered numbers above low. It has at most one element more than there are
		// clients.
		done map[uint64]struct{}
	}
}

func newInsertCounter(records uint64) *insertCounter {
	c := &insertCounter{}
	c.next.Store(records)
	c.low.Store(records)
	c.mu.done = make(map[uint64]struct{})
	return c
}

// take returns the number of a new record.
func (c *insertCounter) take() uint64 { return c.next.Add(1) - 1 }

// answered records that the insert of record n has ended. A failed insert counts too: its outcome
// is unknown, and a gap would stop the counter permanently. A read of such a record may then return
// "not found", and is counted as that.
func (c *insertCounter) answered(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.done[n] = struct{}{}
	low := c.low.Load()
	for {
		if _, ok := c.mu.done[low]; !ok {
			break
		}
		delete(c.mu.done, low)
		low++
	}
	c.low.Store(low)
}

// acknowledged returns the number of records that have been answered without a gap.
func (c *insertCounter) acknowledged() uint64 { return c.low.Load() }

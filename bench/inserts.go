package bench

import (
	"sync"
	"sync/atomic"
)

// insertCounter numbers new records, and knows up to which number all inserts have been answered:
// only those may be read, or a read would race the insert of its own record.
type insertCounter struct {
	next atomic.Uint64
	low  atomic.Uint64 // every number below it has been answered

	mu struct {
		sync.Mutex
		// done holds answered numbers above low; never more than there are clients at work, plus
		// one.
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

// answered reports that the insert of record n has ended. A failed insert counts too: its outcome
// is unknown, and a hole would stop the counter for good; a read of such a record may then be "not
// found", and is counted as that.
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

// acknowledged returns how many records have been answered without a gap.
func (c *insertCounter) acknowledged() uint64 { return c.low.Load() }

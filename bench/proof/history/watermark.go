package history

import (
	"fmt"
	"sync/atomic"
)

// Monotonic checks reads of one key to which one writer at a time writes increasing numbers. It is
// as strong as linearisability for such a key, and needs two numbers, whatever the load.
type Monotonic struct {
	// called is the highest number whose write has begun. known is the highest number that the
	// acknowledgement of a write or the answer of a read has proved to be there.
	called, known atomic.Uint64
}

// raise sets the number to at least n.
func raise(number *atomic.Uint64, n uint64) {
	for {
		current := number.Load()
		if current >= n || number.CompareAndSwap(current, n) {
			return
		}
	}
}

// BeginWrite must be called before the write of n is sent. Numbers start at 1 and increase. A
// number whose write has an unknown outcome is not used again.
func (m *Monotonic) BeginWrite(n uint64) { raise(&m.called, n) }

// Wrote must be called after the write of n was acknowledged.
func (m *Monotonic) Wrote(n uint64) { raise(&m.known, n) }

// Known is the lowest number that a read which begins now may return; 0: the key may be absent.
func (m *Monotonic) Known() uint64 { return m.known.Load() }

// Read checks a read that returned n (0: absent). floor is the value of Known when the read began.
// The error describes the violation.
func (m *Monotonic) Read(floor, n uint64) error {
	if n < floor {
		return fmt.Errorf("stale read: it returned %d, and %d was known before it began", n, floor)
	}
	if called := m.called.Load(); n > called {
		return fmt.Errorf("impossible read: it returned %d, and only %d was ever written", n,
			called)
	}
	raise(&m.known, n)
	return nil
}

// Counter counts increments of a key by compare-and-swap: the certain increments, and the
// increments of unknown outcome.
type Counter struct {
	sure, unknown atomic.Uint64
}

// Added counts an acknowledged increment.
func (c *Counter) Added() { c.sure.Add(1) }

// Unknown counts an increment of unknown outcome.
func (c *Counter) Unknown() { c.unknown.Add(1) }

// Interval returns the lowest and the highest possible number: the certain increments, and all
// increments.
func (c *Counter) Interval() (low, high uint64) {
	sure := c.sure.Load()
	return sure, sure + c.unknown.Load()
}

// Check checks the number of the key when no increment is under way any more.
func (c *Counter) Check(n uint64) error {
	low, high := c.Interval()
	if n < low {
		return fmt.Errorf("%d acknowledged increments lost: the counter is %d, and must be "+
			"between %d and %d", low-n, n, low, high)
	}
	if n > high {
		return fmt.Errorf("%d increments were applied more than once: the counter is %d, and "+
			"must be between %d and %d", n-high, n, low, high)
	}
	return nil
}

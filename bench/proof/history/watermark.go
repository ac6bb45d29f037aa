package history

import (
	"fmt"
	"sync/atomic"
)

// Monotonic checks reads of one key to which one writer at a time writes growing numbers. It is
// linearisability for such a key, at the cost of three numbers whatever the load.
type Monotonic struct {
	// called is the highest number whose write has begun, known the highest that a write's
	// acknowledgement or a read's answer has proved to be there.
	called, known atomic.Uint64
}

// raise makes the number at least n.
func raise(number *atomic.Uint64, n uint64) {
	for {
		current := number.Load()
		if current >= n || number.CompareAndSwap(current, n) {
			return
		}
	}
}

// BeginWrite comes before the write of n leaves. Numbers start at 1 and grow; one whose outcome is
// unknown is not reused.
func (m *Monotonic) BeginWrite(n uint64) { raise(&m.called, n) }

// Wrote comes after the write of n was acknowledged.
func (m *Monotonic) Wrote(n uint64) { raise(&m.known, n) }

// Known is the lowest number that a read which begins now may return; 0 is absence.
func (m *Monotonic) Known() uint64 { return m.known.Load() }

// Read checks a read that began when Known was floor and returned n (0: nothing there). The error
// says what is wrong.
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

// Counter counts increments of one key's number by compare-and-swap: those certainly done, and
// those of unknown outcome.
type Counter struct {
	sure, unknown atomic.Uint64
}

// Added is an increment that was acknowledged.
func (c *Counter) Added() { c.sure.Add(1) }

// Unknown is an increment that may have happened.
func (c *Counter) Unknown() { c.unknown.Add(1) }

// Interval is what the number may be: at least the sure increments, at most all.
func (c *Counter) Interval() (low, high uint64) {
	sure := c.sure.Load()
	return sure, sure + c.unknown.Load()
}

// Check compares with the number that is there when no increment is under way any more.
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

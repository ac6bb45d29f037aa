package hlc

import (
	"sync/atomic"
	"time"
)

// Physical is a physical clock. Implementations must be safe for concurrent use and may jump in
// either direction.
type Physical interface {
	// Now is nanoseconds since the Unix epoch.
	Now() int64
}

// System is the operating system's wall clock.
func System() Physical { return systemClock{} }

// Monotonic is a clock that never goes back: nanoseconds since some time before its first use. Only
// differences of its readings have a meaning. It runs on while the process is paused. It must be
// safe for concurrent use.
type Monotonic func() int64

// SystemMonotonic is the process's own monotonic clock. On Linux it runs on while the machine is
// suspended. It does not notice that a virtual machine was suspended if the host stops all of the
// machine's clocks; then a Steady is untrusted once the wall clock has been put right.
func SystemMonotonic() Monotonic { return systemMonotonic() }

// AwakeMonotonic is Go's monotonic clock. On Linux it stands still while the machine is suspended.
// So a Steady compares the wall clock with it: the time that the system adds to the wall clock and
// to the clock of SystemMonotonic after a suspension is the same estimate, often wrong by a second.
func AwakeMonotonic() Monotonic {
	epoch := time.Now()
	return func() int64 { return int64(time.Since(epoch)) }
}

type systemClock struct{}

func (systemClock) Now() int64 { return time.Now().UnixNano() }

// Manual is a physical clock that moves only when it is told to. The zero value stands at the
// epoch.
type Manual struct {
	now atomic.Int64
}

// NewManual returns a manual clock that stands at the given nanoseconds.
func NewManual(now int64) *Manual {
	m := &Manual{}
	m.Set(now)
	return m
}

// Now is the time that was set.
func (m *Manual) Now() int64 { return m.now.Load() }

// Set moves the clock, forward or back.
func (m *Manual) Set(now int64) { m.now.Store(now) }

// Advance moves the clock by d, which may be negative, and returns the new time.
func (m *Manual) Advance(d time.Duration) int64 { return m.now.Add(int64(d)) }

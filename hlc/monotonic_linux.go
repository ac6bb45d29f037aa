//go:build linux

package hlc

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	// clockMonotonic stands still while the machine is suspended; package time reads it. clockBoot
	// runs on, and is otherwise the same.
	clockMonotonic, clockBoot = 1, 7

	// sleepLimit is by how much the wall clock and the monotonic one have to come apart until it is
	// looked whether the machine was suspended.
	sleepLimit = int64(time.Millisecond)
	// sleepPrecision is the precision to which sleep is measured, in at most sleepTries attempts.
	sleepPrecision = int64(100 * time.Microsecond)
	sleepTries     = 100
)

// systemMonotonic is CLOCK_BOOTTIME, unless this system does not have that.
func systemMonotonic() Monotonic {
	epoch := time.Now()
	c := &bootClock{
		pair:      func() (wall, monotonic int64) { return pairOf(time.Now(), epoch) },
		monotonic: func() (int64, bool) { return readClock(clockMonotonic) },
		boot:      func() (int64, bool) { return readClock(clockBoot) },
	}
	if !c.start() {
		return AwakeMonotonic()
	}
	return c.now
}

// bootClock runs on while the machine is suspended, and costs little more than the clock of package
// time. Reading CLOCK_BOOTTIME takes a system call, since Go reads only the wall clock and
// CLOCK_MONOTONIC without one. But suspension, and nothing else that is frequent, changes the
// difference of those two, and both of them and the boot time change in one step when it ends. So
// the time is CLOCK_MONOTONIC plus how long the machine has slept in all, which is measured anew
// whenever the difference has changed.
//
// A reading that is interrupted between its clocks may not notice that the machine slept meanwhile.
// Then it shows an earlier time, at which the call had begun already: that is no different from a
// caller that stood still after the call.
type bootClock struct {
	// pair reads the wall clock and the monotonic one. The latter starts at another time than
	// monotonic.
	pair func() (wall, monotonic int64)
	// monotonic and boot read the two clocks with a system call.
	monotonic, boot func() (ns int64, ok bool)

	// last is the last measurement.
	//
	// INVARIANT: its slept never decreases, and when a reading returns, last has at least the sleep
	// that the reading counts: later readings count as much.
	last atomic.Pointer[sleepSample]
}

type sleepSample struct {
	// apart is how far the wall clock was ahead of the monotonic one before slept was measured: if
	// the machine sleeps afterwards, that changes.
	apart int64
	// slept is how long the machine has slept in all, or a little less.
	slept int64
}

// start measures for the first time, and reports whether that succeeded.
func (c *bootClock) start() bool {
	wall, monotonic := c.pair()
	slept, exact := c.measure()
	c.last.Store(&sleepSample{apart: wall - monotonic, slept: slept})
	return exact
}

func (c *bootClock) now() int64 {
	// INVARIANT: last is read before the clocks. That one is newer shows as another distance
	// between them; that it is older never would.
	last := c.last.Load()
	wall, monotonic := c.pair()
	apart := wall - monotonic
	if moved := apart - last.apart; moved <= sleepLimit && moved >= -sleepLimit {
		return monotonic + last.slept
	}
	return monotonic + c.cameApart(apart)
}

// cameApart measures how long the machine has slept in all, after the wall clock was found that far
// ahead of the monotonic one.
func (c *bootClock) cameApart(apart int64) (slept int64) {
	slept, exact := c.measure()
	for {
		last := c.last.Load()
		next := sleepSample{apart: apart, slept: max(slept, last.slept)}
		if !exact {
			next.apart = last.apart // the next reading tries again
		}
		if next == *last || c.last.CompareAndSwap(last, &next) {
			return next.slept
		}
	}
}

// measure returns how long the machine has slept in all: never more than that, and if exact is set,
// at most sleepPrecision less.
func (c *bootClock) measure() (slept int64, exact bool) {
	slept = math.MinInt64 // in a time namespace it may begin below zero
	for range sleepTries {
		before, ok := c.monotonic()
		boot, ok2 := c.boot()
		after, ok3 := c.monotonic()
		if !ok || !ok2 || !ok3 {
			return slept, false
		}
		slept = max(slept, boot-after)
		if after-before <= sleepPrecision {
			return slept, true
		}
	}
	return slept, false
}

// pairOf takes a reading apart. The monotonic time counts from epoch.
func pairOf(now, epoch time.Time) (wall, monotonic int64) {
	// Outside of these years a time does not carry a monotonic reading, and a difference would be
	// one of wall clocks.
	if since1885 := now.Unix() - unix1885; uint64(since1885) >= 1<<33 {
		return now.UnixNano(), int64(time.Since(epoch))
	}
	return now.UnixNano(), int64(now.Sub(epoch))
}

// unix1885 is the beginning of the time that package time can show together with a monotonic
// reading, which spans 2^33 seconds.
const unix1885 = -2682288000

func readClock(id uintptr) (ns int64, ok bool) {
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&t)),
		0); errno != 0 {
		return 0, false
	}
	return t.Nano(), true
}

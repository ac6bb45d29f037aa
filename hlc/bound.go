package hlc

import "time"

// DefaultMaxOffset is the maximum offset of a clock that was configured without one.
const DefaultMaxOffset = 250 * time.Millisecond

// BoundSource says how far the physical clock may be from true time.
type BoundSource interface {
	// MaxError is the greatest distance in nanoseconds between the physical clock and true time,
	// now. ok is false when the source cannot vouch for a number; the clock then falls back on its
	// maximum offset, and so it does if the number is higher.
	MaxError() (ns int64, ok bool)
}

// offsetLimiter is also implemented by a BoundSource that carries the operator's configured maximum
// offset.
type offsetLimiter interface {
	maxOffset() time.Duration
}

// FixedBound is the operator's promise that no two clocks of the cluster, including true time, ever
// differ by more than d: when one clock is d beyond a time, all of them are beyond it. Zero or less
// means DefaultMaxOffset.
func FixedBound(d time.Duration) BoundSource {
	if d <= 0 {
		d = DefaultMaxOffset
	}
	return fixedBound(d)
}

type fixedBound time.Duration

func (b fixedBound) MaxError() (int64, bool)  { return int64(b), true }
func (b fixedBound) maxOffset() time.Duration { return time.Duration(b) }

// KernelBound takes the kernel's own estimate (adjtimex's maxerror) while the kernel reports that
// the clock is synchronised. Otherwise, on systems without such a call, and whenever the kernel's
// estimate is wider than the fallback, the fallback holds: it is the operator's promise, and so
// also the maximum clock offset that the cluster tolerates. The kernel's estimate relates this
// clock to true time; it says nothing of other clocks (Clock.WaitFloor). All servers use it, or
// none. Zero or less means DefaultMaxOffset. Use it with System only, or a Steady over that: it
// says nothing about any other physical clock.
func KernelBound(fallback time.Duration) BoundSource {
	if fallback <= 0 {
		fallback = DefaultMaxOffset
	}
	return &kernelBound{fallback: fallback, read: readKernelClock}
}

// kernelReading is the kernel's report about its clock.
type kernelReading struct {
	maxErrorMicros int64
	synchronised   bool
}

type kernelBound struct {
	fallback time.Duration
	// read asks the kernel; ok is false if it cannot be asked. It takes well below a microsecond.
	read func() (kernelReading, bool)
}

func (b *kernelBound) MaxError() (int64, bool) {
	r, ok := b.read()
	if !ok || !r.synchronised || r.maxErrorMicros < 0 {
		return 0, false
	}
	// Compare in microseconds: the product could overflow for a nonsensical reading.
	if r.maxErrorMicros > b.fallback.Microseconds() {
		return int64(b.fallback), true
	}
	return r.maxErrorMicros * int64(time.Microsecond), true
}

func (b *kernelBound) maxOffset() time.Duration { return b.fallback }

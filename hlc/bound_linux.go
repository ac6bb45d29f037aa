//go:build linux

package hlc

import "syscall"

const (
	// clockError is the return of adjtimex for a clock that is not synchronised (TIME_ERROR).
	clockError = 5
	// statusUnsynchronised is the status bit for the same (STA_UNSYNC).
	statusUnsynchronised = 0x0040
)

// readKernelClock reads, and never adjusts: modes is zero, so the call needs no privilege.
func readKernelClock() (kernelReading, bool) {
	var t syscall.Timex
	state, err := syscall.Adjtimex(&t)
	if err != nil {
		return kernelReading{}, false
	}
	return kernelReading{
		maxErrorMicros: int64(t.Maxerror),
		synchronised:   state != clockError && t.Status&statusUnsynchronised == 0,
	}, true
}

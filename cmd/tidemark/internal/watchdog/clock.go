//go:build unix

package watchdog

import "golang.org/x/sys/unix"

// Clock returns the time of the clock for deadlines, which all processes of this machine share. It
// is in nanoseconds and never goes back. On Linux it continues while the machine is suspended.
func Clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(boot, &t); err != nil {
		return Never // without a clock the deadline counts as over
	}
	return t.Nano()
}

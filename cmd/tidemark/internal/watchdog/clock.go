//go:build unix

package watchdog

import "golang.org/x/sys/unix"

// Clock is the clock of deadlines, which all processes of this machine share: nanoseconds since
// some moment, never going back. On Linux it goes on while the machine is suspended.
func Clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(boot, &t); err != nil {
		return Never // nothing may run by a clock that cannot be read
	}
	return t.Nano()
}

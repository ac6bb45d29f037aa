package watchdog

import "golang.org/x/sys/unix"

// boot is the clock that continues while the machine is suspended.
const boot = unix.CLOCK_BOOTTIME

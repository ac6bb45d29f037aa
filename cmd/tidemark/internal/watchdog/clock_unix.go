//go:build unix && !linux

package watchdog

import "golang.org/x/sys/unix"

const boot = unix.CLOCK_MONOTONIC

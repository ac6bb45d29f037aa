//go:build unix && (!linux || race)

package nonblock

import "syscall"

// Write writes as much as a non-blocking socket takes without waiting. The error is the system's;
// EAGAIN: there is no room.
func Write(fd uintptr, b []byte) (n int, err error) {
	for {
		n, err = syscall.Write(int(fd), b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

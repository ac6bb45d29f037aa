package transport

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func limitUnacknowledged(raw syscall.RawConn, d time.Duration) {
	// If this fails, the watch still breaks the connection, if it detects the failure.
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int(d/time.Millisecond))
	})
}

package rpc

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged breaks a connection whose bytes stay unacknowledged for so long.
func limitUnacknowledged(conn net.Conn, d time.Duration) {
	if raw := rawConn(conn); raw != nil {
		// Without it the stream's own watch breaks the lane, if it sees the trouble too.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
		})
	}
}

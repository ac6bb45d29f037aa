//go:build unix

package transport

import (
	"io"
	"net"
	"syscall"

	"github.com/tidemarkdb/tidemark/rpc/nonblock"
)

// peek returns the first bytes that arrive on a connection, and a connection from which they can
// still be read: the same, if it has a file descriptor. It waits for all of them.
func peek(conn net.Conn) (net.Conn, [peekedBytes]byte, error) {
	var first [peekedBytes]byte
	raw := rawConn(conn)
	if raw == nil {
		return peekByReading(conn)
	}
	var n int
	var err error
	if readErr := raw.Read(func(fd uintptr) bool {
		for {
			n, _, err = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
			if err == syscall.EINTR {
				continue
			}
			// With fewer bytes it is called again when more have come.
			return err != syscall.EAGAIN && (err != nil || n == 0 || n == peekedBytes)
		}
	}); readErr != nil {
		err = readErr
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	return conn, first, err
}

// writeSome writes as much as possible without waiting.
func writeSome(raw syscall.RawConn, b []byte) (n int, err error) {
	if waitErr := raw.Write(func(fd uintptr) bool {
		n, err = nonblock.Write(fd, b)
		return true
	}); waitErr != nil {
		return 0, waitErr
	}
	if err == syscall.EAGAIN {
		err = nil
	}
	return max(n, 0), err
}

//go:build unix

package transport

import (
	"io"
	"net"
	"syscall"
)

// peek looks at the first byte that arrives on a connection, and gives a connection from which it
// can still be read: the same, if it has a file descriptor.
func peek(conn net.Conn) (net.Conn, byte, error) {
	var first [1]byte
	var n int
	if raw := rawConn(conn); raw != nil {
		var err error
		if readErr := raw.Read(func(fd uintptr) bool {
			for {
				n, _, err = syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
				if err != syscall.EINTR {
					return err != syscall.EAGAIN
				}
			}
		}); readErr != nil {
			err = readErr
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		return conn, first[0], err
	}
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return nil, 0, err
	}
	return &peekedConn{Conn: conn, first: first[:]}, first[0], nil
}

// writeSome writes what can be written without waiting.
func writeSome(raw syscall.RawConn, b []byte) (n int, err error) {
	if waitErr := raw.Write(func(fd uintptr) bool {
		for {
			n, err = syscall.Write(int(fd), b)
			if err != syscall.EINTR {
				return true
			}
		}
	}); waitErr != nil {
		return 0, waitErr
	}
	if err == syscall.EAGAIN {
		err = nil
	}
	return max(n, 0), err
}

//go:build !unix

package transport

import (
	"net"
	"syscall"
)

func peek(conn net.Conn) (net.Conn, [peekedBytes]byte, error) { return peekByReading(conn) }

func writeSome(syscall.RawConn, []byte) (int, error) { return 0, nil }

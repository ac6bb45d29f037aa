//go:build !unix

package transport

import (
	"io"
	"net"
	"syscall"
)

func peek(conn net.Conn) (net.Conn, byte, error) {
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return nil, 0, err
	}
	return &peekedConn{Conn: conn, first: first[:]}, first[0], nil
}

func writeSome(syscall.RawConn, []byte) (int, error) { return 0, nil }

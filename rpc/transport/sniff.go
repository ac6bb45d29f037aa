package transport

import (
	"io"
	"net"
	"slices"
)

// peekedBytes is the number of bytes that tell the protocols apart. Every protocol begins with at
// least as many.
const peekedBytes = 3

// httpMethods lists the beginnings of HTTP/1 requests. HTTP/2 begins with "PRI".
var httpMethods = []string{"GET", "HEA", "POS", "PUT", "PAT", "DEL", "OPT"}

func beginsHTTP(first [peekedBytes]byte) bool {
	return slices.Contains(httpMethods, string(first[:]))
}

// peekByReading reads the first bytes, and returns a connection from which they can be read again.
func peekByReading(conn net.Conn) (net.Conn, [peekedBytes]byte, error) {
	var first [peekedBytes]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return nil, first, err
	}
	return &peekedConn{Conn: conn, first: first[:]}, first, nil
}

// peekedConn is a connection whose first bytes have been read.
type peekedConn struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (c *peekedConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

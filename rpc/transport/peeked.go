package transport

import "net"

// peekedConn is a connection whose first byte was read already.
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

//go:build !linux || race

package nonblock

import "net"

// Conn is a TCP connection.
type Conn struct{ *net.TCPConn }

// New makes a connection of a TCP connection.
func New(tcp *net.TCPConn) *Conn { return &Conn{tcp} }

// Waited reports whether the last Read had to wait. That is unknown here, so it returns true.
func (c *Conn) Waited() bool { return true }

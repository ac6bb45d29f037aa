package nonblock

import "net"

// Wrap is New for a connection of any kind: one that is not TCP stays as it is.
func Wrap(conn net.Conn) net.Conn {
	if tcp, ok := conn.(*net.TCPConn); ok {
		return New(tcp)
	}
	return conn
}

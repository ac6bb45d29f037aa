package transport

import (
	"io"
	"time"
)

// lingering bounds how long a connection is kept after it was ended for a reason, lingeringBytes
// what is read from it meanwhile. If it was closed at once, with bytes of the other side unread,
// the kernel would reset it, and the other side could see the reset before it has read the reason.
const (
	lingering      = 500 * time.Millisecond
	lingeringBytes = 1 << 20
)

// Refuse tells the opener why it is not wanted, and closes the connection when the opener has heard
// it, or does not listen. Nothing may have been sent or received.
func (c *Conn) Refuse(err error) { c.end(controlRefused, err) }

// End tells the other side why the connection ends, and closes it as Refuse does. No other
// goroutine may send or receive any more.
func (c *Conn) End(err error) { c.end(controlEnded, err) }

func (c *Conn) end(kind byte, err error) {
	// A timer instead of a deadline: gRPC's server takes those away.
	timer := time.AfterFunc(lingering, func() { _ = c.Close() })
	defer timer.Stop()
	if c.sendControl(kind, reason(err)) == nil {
		if half, ok := c.socket.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_ = c.socket.SetReadDeadline(time.Time{})
			_, _ = io.CopyN(io.Discard, c.socket, lingeringBytes)
		}
	}
	_ = c.Close()
}

package transport

import (
	"io"
	"time"
)

// lingering bounds how long a connection stays open after it was ended for a reason, lingeringBytes
// how many bytes are read from it meanwhile. If it was closed at once, with unread bytes of the
// other side, the kernel would reset it, and the other side could see the reset before it has read
// the reason.
const (
	lingering      = 500 * time.Millisecond
	lingeringBytes = 1 << 20
)

// Refuse tells the opener why it is refused, and closes the connection when the opener has read
// that, or does not read. Nothing may have been sent or received.
func (c *Conn) Refuse(err error) { c.end(controlRefused, err) }

// End tells the other side why the connection ends, and closes it as Refuse does. No other
// goroutine may send or receive any more.
func (c *Conn) End(err error) { c.end(controlEnded, err) }

func (c *Conn) end(kind byte, err error) {
	// A timer is used because gRPC's server clears deadlines.
	timer := time.AfterFunc(lingering, func() { _ = c.Close() })
	defer timer.Stop()
	if c.sendControl(kind, reason(err)) == nil {
		if half, ok := c.socket.Conn.(halfCloser); ok && half.CloseWrite() == nil {
			c.reads.Lock()
			c.reads.lingers = true
			_ = c.socket.SetReadDeadline(time.Time{})
			c.reads.Unlock()
			_, _ = io.CopyN(io.Discard, c.socket, lingeringBytes)
		}
	}
	_ = c.Close()
}

// halfCloser is a connection whose sending half can be closed alone.
type halfCloser interface{ CloseWrite() error }

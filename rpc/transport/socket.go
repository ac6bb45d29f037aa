package transport

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// writePiece bounds one write, so that a large message that moves is seen to move.
const writePiece = 256 << 10

// socket is a connection that shows whether it moves.
type socket struct {
	net.Conn
	// reads and writes count; reading and writing say that a goroutine is at it.
	reads, writes    atomic.Uint64
	reading, writing atomic.Bool
	// raw is nil if there is no file descriptor.
	raw syscall.RawConn
}

func newSocket(conn net.Conn) *socket { return &socket{Conn: conn, raw: rawConn(conn)} }

// rawConn gives access to the file descriptor of a connection that has one, and nil for any other.
func rawConn(conn net.Conn) syscall.RawConn {
	if tcp, ok := conn.(syscall.Conn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// limitUnacknowledged breaks the connection when bytes stay unacknowledged for so long.
func (s *socket) limitUnacknowledged(d time.Duration) {
	if s.raw != nil {
		limitUnacknowledged(s.raw, d)
	}
}

// writeSome writes what can be written without waiting: nothing, if there is no file descriptor.
func (s *socket) writeSome(b []byte) (int, error) {
	if s.raw == nil {
		return 0, nil
	}
	s.writes.Add(1)
	return writeSome(s.raw, b)
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	s.reading.Store(true)
	n, err := s.Conn.Read(b)
	s.reading.Store(false)
	s.reads.Add(1)
	return n, err
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (written int, err error) {
	s.writing.Store(true)
	defer s.writing.Store(false)
	for len(b) > 0 && err == nil {
		var n int
		n, err = s.Conn.Write(b[:min(len(b), writePiece)])
		s.writes.Add(1)
		written, b = written+n, b[n:]
	}
	return written, err
}

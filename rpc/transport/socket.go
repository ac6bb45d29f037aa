package transport

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// writePiece bounds one write, so that progress of a large message is visible.
const writePiece = 256 << 10

// socket is a connection that shows its progress.
type socket struct {
	net.Conn
	// reads and writes count calls; reading and writing are set during a call.
	reads, writes    atomic.Uint64
	reading, writing atomic.Bool
	// raw is nil if there is no file descriptor.
	raw syscall.RawConn
}

func newSocket(conn net.Conn) *socket { return &socket{Conn: conn, raw: rawConn(conn)} }

// rawConn returns access to the file descriptor of a connection, or nil.
func rawConn(conn net.Conn) syscall.RawConn {
	if tcp, ok := conn.(syscall.Conn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// limitUnacknowledged breaks the connection when bytes stay unacknowledged for d.
func (s *socket) limitUnacknowledged(d time.Duration) {
	if s.raw != nil {
		limitUnacknowledged(s.raw, d)
	}
}

// writeSome writes as much as possible without waiting: nothing, if there is no file descriptor.
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

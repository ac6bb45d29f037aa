package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

// maxUnasked bounds the bytes that TLS wants to send by itself (its answers to key updates) between
// two messages.
const maxUnasked = 64 << 10

var errUnasked = errors.New("too many key updates")

// seal lies below TLS. After the handshake it keeps the records that TLS makes, so that they are
// written as plain bytes are: without blocking, if the sender wants that, and all records of a
// message at once.
type seal struct {
	net.Conn
	tls *tls.Conn

	mu sync.Mutex
	// sealing: the handshake is done. asked: the sender is in records.
	sealing, asked bool
	kept           []byte
	// written are the records that records gave last; when it is called again they were written.
	written []byte
}

// begin ends the handshake.
func (s *seal) begin(conn *tls.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tls, s.sealing = conn, true
}

// records encrypts a frame. The result is valid until the next call. What TLS has wanted to send by
// itself comes first.
func (s *seal) records(plain []byte) ([]byte, error) {
	s.mu.Lock()
	s.asked = true
	s.mu.Unlock()
	_, err := s.tls.Write(plain)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = false
	// TLS may write by itself while the records are on their way: not into these bytes.
	s.kept, s.written = s.written[:0], s.kept
	if cap(s.kept) > bufferBytes {
		s.kept = nil
	}
	return s.written, err
}

// Write implements net.Conn, for TLS, which calls it by one goroutine at a time.
func (s *seal) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sealing {
		return s.Conn.Write(b)
	}
	if !s.asked && len(s.kept)+len(b) > maxUnasked {
		return 0, errUnasked
	}
	s.kept = append(s.kept, b...)
	return len(b), nil
}

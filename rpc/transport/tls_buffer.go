package transport

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"
)

const (
	// maxUnasked bounds the bytes that TLS sends by itself (its answers to key updates) between two
	// messages.
	maxUnasked = 64 << 10
	// recordBytes is the largest number of plain bytes in a record, recordOverhead its overhead:
	// header, type and tag (RFC 8446, section 5.2).
	recordBytes    = 16 << 10
	recordOverhead = 5 + 1 + 16
	// unaskedBytes is space for TLS's own messages besides a message's records.
	unaskedBytes = 512
)

var errUnasked = errors.New("too many key updates")

// tlsBuffer is the connection below TLS. After the handshake it keeps the records that TLS makes,
// so that they can be written like plain bytes: without blocking, if the sender wants that, and all
// records of a message at once.
type tlsBuffer struct {
	net.Conn
	tls *tls.Conn
	// plain holds the plain bytes of the next record; spare is an empty buffer. They belong to the
	// sender.
	plain, spare []byte

	mu sync.Mutex
	// buffering is set when the handshake is done, asked while the sender is in records.
	buffering, asked bool
	kept             []byte
}

// begin ends the handshake.
func (s *tlsBuffer) begin(conn *tls.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tls, s.buffering = conn, true
}

// frame encrypts a frame with a message that consists of parts, of size bytes in total. The caller
// releases the result. Messages that TLS has sent by itself come first.
//
// The bytes of a record are gathered just before the record is made: then they are in the
// processor's nearest cache, where the bytes of all records of a large message would not fit.
func (s *tlsBuffer) frame(parts [][]byte, size int) ([]byte, error) {
	s.begun(headerBytes + size)
	s.plain = binary.LittleEndian.AppendUint32(s.plain[:0], uint32(size))
	for _, part := range parts {
		for len(s.plain)+len(part) > recordBytes {
			n := recordBytes - len(s.plain)
			s.plain = append(s.plain, part[:n]...)
			part = part[n:]
			if _, err := s.tls.Write(s.plain); err != nil {
				return s.ended(err)
			}
			s.plain = s.plain[:0]
		}
		s.plain = append(s.plain, part...)
	}
	_, err := s.tls.Write(s.plain)
	return s.ended(err)
}

// records encrypts a contiguous frame, like frame.
func (s *tlsBuffer) records(plain []byte) ([]byte, error) {
	s.begun(len(plain))
	_, err := s.tls.Write(plain)
	return s.ended(err)
}

// begun makes room for the records of that many bytes.
func (s *tlsBuffer) begun(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = true
	if s.kept == nil {
		// TLS may write by itself while the former records are being sent: it must not overwrite
		// them.
		s.kept, s.spare = s.spare, nil
	}
	s.kept = withRoom(s.kept, size+(size/recordBytes+1)*recordOverhead+unaskedBytes)
}

// ended returns the records that were made since begun.
func (s *tlsBuffer) ended(err error) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = false
	records := s.kept
	s.kept = nil
	return records, err
}

// release takes back records that were written, or never will be.
func (s *tlsBuffer) release(records []byte) { s.spare = release(records) }

// Write implements net.Conn, for TLS, which calls it on one goroutine at a time.
func (s *tlsBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.buffering {
		return s.Conn.Write(b)
	}
	if !s.asked && len(s.kept)+len(b) > maxUnasked {
		return 0, errUnasked
	}
	s.kept = append(s.kept, b...)
	return len(b), nil
}

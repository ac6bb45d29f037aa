package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// MaxMessageBytes bounds one message: the largest transaction (64 MiB) with its overhead.
	MaxMessageBytes = 80 << 20
	// controlBit marks the length of a control frame, maxControlBytes bounds one.
	controlBit      = 1 << 31
	maxControlBytes = 64 << 10
	headerBytes     = 4
	bufferBytes     = 64 << 10
	// sealedBufferBytes is the size of the read buffer over a TLS connection. TLS decrypts records
	// in a buffer of its own; larger reads go straight into the message.
	sealedBufferBytes = 512
)

// A control frame begins with its kind. Refused and ended are followed by a code (one byte) and the
// text of the reason.
const (
	controlKeepalive  = 'k'
	controlAccepted   = 'a'
	controlRefused    = 'r'
	controlEnded      = 'e'
	controlHalfClosed = 'h'
	controlHello      = 'o'
	// See auth.go.
	controlProve     = 'v'
	controlChallenge = 'c'
	controlProof     = 'p'
)

// Refused says why the other side has refused a connection. The other side has received no message
// on it.
type Refused struct{ status *status.Status }

// Error implements error.
func (r *Refused) Error() string { return r.status.Err().Error() }

// GRPCStatus returns the reason as the other side stated it.
func (r *Refused) GRPCStatus() *status.Status { return r.status }

// appendControl appends a control frame.
func appendControl(b []byte, kind byte, content []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, controlBit|uint32(1+len(content)))
	return append(append(b, kind), content...)
}

// reason encodes the content of a control frame that ends a connection.
func reason(err error) []byte {
	s := status.Convert(err)
	text := s.Message()
	return append([]byte{byte(s.Code())}, text[:min(len(text), maxControlBytes/2)]...)
}

// reasonOf decodes the result of reason.
func reasonOf(content []byte) *status.Status {
	if len(content) == 0 || codes.Code(content[0]) == codes.OK {
		return status.New(codes.Unknown, "the connection ended without a reason")
	}
	return status.New(codes.Code(content[0]), string(content[1:]))
}

// readFrame reads a frame, whose bytes belong to the caller. take is called for the memory of
// frames, except small ones, as their bytes come; nil: no limit.
func readFrame(r *bufio.Reader, take func(n int) bool) (content []byte, control bool, err error) {
	length, err := r.Peek(headerBytes)
	if err != nil {
		return nil, false, endOfFrames(err, len(length))
	}
	size := binary.LittleEndian.Uint32(length)
	control = size&controlBit != 0
	size &^= controlBit
	limit := uint32(MaxMessageBytes)
	if control {
		limit = maxControlBytes
	}
	if size > limit {
		return nil, control, fmt.Errorf("frame too large: %d bytes, at most %d", size, limit)
	}
	if _, err := r.Discard(headerBytes); err != nil {
		return nil, control, err
	}
	if size <= smallFrame {
		take = nil
	}
	content, err = readContent(r, int(size), take)
	if err == nil && control && size == 0 {
		err = errors.New("a control frame without content")
	}
	return content, control, err
}

// endOfFrames returns io.EOF for an end between two frames, and io.ErrUnexpectedEOF for one within
// a frame.
func endOfFrames(err error, have int) error {
	if errors.Is(err, io.EOF) && have > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// smallFrame is the size up to which take is not called for a frame: a connection has buffers of
// that size anyway.
const smallFrame = bufferBytes

// believed is how many bytes are allocated at once because a frame says that they will come.
const believed = 1 << 20

// errNoMemory ends a connection for whose message there is no memory.
var errNoMemory = status.Error(codes.ResourceExhausted, "too many bytes of requests are on their "+
	"way to this server, or of this host; send fewer at a time")

// roomGrows is the factor by which the buffer grows when it is full. From wholeFrom bytes on it
// grows to the full size, so that the buffer copied from is small beside it.
const (
	roomGrows = 4
	wholeFrom = 16 << 20
)

// readContent does not trust a size before a part of the bytes has come: it allocates no more than
// four or five times as many bytes as have come, so that a peer cannot make a server clear much
// memory with few bytes. It allocates with make alone, which clears memory piece by piece, and
// copies piece by piece. An append that grows, or a copy as the statement after make, copies or
// clears everything at once without interruption for a garbage collection: all goroutines would
// wait, up to 0.2 s for 80 MiB of new memory.
func readContent(r io.Reader, size int, take func(n int) bool) (content []byte, err error) {
	for have := 0; ; have = len(content) {
		next := min(size, max(have*roomGrows, believed))
		if have >= wholeFrom {
			next = size
		}
		if take != nil && !take(next-have) {
			return nil, errNoMemory
		}
		grown := make([]byte, next)
		for from := 0; from < have; from += believed {
			to := min(from+believed, have)
			copy(grown[from:to], content[from:to])
		}
		content = grown
		if _, err = io.ReadFull(r, content[have:]); err != nil || next == size {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return content, err
}

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
	// MaxMessageBytes bounds one message: the largest transaction (64 MiB) and what surrounds it.
	MaxMessageBytes = 80 << 20
	// controlBit marks the length of a control frame, maxControlBytes bounds one.
	controlBit      = 1 << 31
	maxControlBytes = 64 << 10
	headerBytes     = 4
	bufferBytes     = 64 << 10
	// sealedBufferBytes is what is read ahead of a TLS connection, whose records are decrypted in a
	// buffer of their own: what does not fit goes straight to the message that it is of.
	sealedBufferBytes = 512
)

// A control frame begins with what it is. Refused and ended are followed by a code (one byte) and
// the reason's text.
const (
	controlKeepalive  = 'k'
	controlAccepted   = 'a'
	controlRefused    = 'r'
	controlEnded      = 'e'
	controlHalfClosed = 'h'
	controlHello      = 'o'
	// See proof.go.
	controlProve     = 'v'
	controlChallenge = 'c'
	controlProof     = 'p'
)

// Refused is why the other side has not taken a connection. It has received no message of it.
type Refused struct{ status *status.Status }

// Error implements error.
func (r *Refused) Error() string { return r.status.Err().Error() }

// GRPCStatus gives the reason as the other side stated it.
func (r *Refused) GRPCStatus() *status.Status { return r.status }

// appendControl appends a control frame.
func appendControl(b []byte, kind byte, content []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, controlBit|uint32(1+len(content)))
	return append(append(b, kind), content...)
}

// reason is the content of a control frame that ends a connection.
func reason(err error) []byte {
	s := status.Convert(err)
	text := s.Message()
	return append([]byte{byte(s.Code())}, text[:min(len(text), maxControlBytes/2)]...)
}

// reasonOf decodes it.
func reasonOf(content []byte) *status.Status {
	if len(content) == 0 || codes.Code(content[0]) == codes.OK {
		return status.New(codes.Unknown, "the connection ended without a reason")
	}
	return status.New(codes.Code(content[0]), string(content[1:]))
}

// readFrame reads a frame. The bytes are the caller's. take is asked for the memory of all but
// small ones, as their bytes come; nil: it is there.
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

// endOfFrames: the end between two frames is io.EOF, within one io.ErrUnexpectedEOF.
func endOfFrames(err error, have int) error {
	if errors.Is(err, io.EOF) && have > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// smallFrame is the size up to which the memory of a frame is not asked for: a connection has
// buffers of that size anyway.
const smallFrame = bufferBytes

// believed is how many bytes are made room for because a frame says that they will come.
const believed = 1 << 20

// errNoMemory ends a connection whose message finds no memory.
var errNoMemory = status.Error(codes.ResourceExhausted, "too many bytes of requests are on their "+
	"way to this server, or of this host; send fewer at a time")

// roomGrows is how many times as much room is made when what there was is full. From wholeFrom
// bytes on it is the whole, so that what is copied from does not come to much beside it.
const (
	roomGrows = 4
	wholeFrom = 16 << 20
)

// readContent does not believe a size before some of the bytes are there: it makes no more room
// than four or five times what has come, so that few bytes do not have a server clear many. It
// makes room with make alone, which clears memory piece by piece, and copies piece by piece. An
// append that grows, or a copy that follows make as a statement, copies or clears all of it in one
// go, which no collection of garbage can interrupt: all goroutines would wait, up to 0.2 s for 80
// MiB of new memory.
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

package gateway

import (
	"encoding/json"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	// partBytes estimates the memory of a part of a message, besides its content.
	partBytes = 128
	// maxDepth bounds the nesting of a request. Nested transactions take three levels each.
	maxDepth = 1000
)

var unmarshal = protojson.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: maxDepth}

// body reads a request's body: JSON values one after the other. It is for one goroutine.
type body struct {
	exchange *exchange
	from     io.ReadCloser
	decoder  *json.Decoder
	// left is how many more bytes the message may have. held is how many bytes were taken from the
	// room.
	left int
	held int64
	// refused is why reading has ended.
	refused error
	// begun is set when a message has come, over when there is nothing more to be read.
	begun, over bool
}

func newBody(x *exchange) *body {
	b := &body{exchange: x, from: x.request.Body}
	b.decoder = json.NewDecoder(b)
	return b
}

// errTooLarge and errTooMany are the errors of messages that exceed the limits.
var (
	errTooLarge = status.Error(codes.ResourceExhausted, "etcdserver: request is too large")
	errTooMany  = status.Error(codes.ResourceExhausted,
		"etcdserver: the request has too many parts")
	errNoRoom = status.Error(codes.ResourceExhausted,
		"etcdserver: too many requests at the same time; try again later")
)

// Read implements io.Reader for the decoder.
func (b *body) Read(p []byte) (int, error) {
	if b.refused != nil {
		return 0, b.refused
	}
	if b.left <= 0 {
		b.refused = errTooLarge
		return 0, b.refused
	}
	n, err := b.read(p)
	if !b.hold(int64(n)) {
		b.refused = errNoRoom
		return 0, b.refused
	}
	return n, err
}

// read reads at most as many bytes as the message may still have.
func (b *body) read(p []byte) (int, error) {
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	b.over = b.over || errors.Is(err, io.EOF)
	return n, err
}

// hold takes bytes from the room, until free.
func (b *body) hold(n int64) bool {
	if !b.exchange.config.Room.Take(b.exchange.party, n) {
		return false
	}
	b.held += n
	return true
}

func (b *body) free() {
	b.exchange.config.Room.Give(b.exchange.party, b.held)
	b.held = 0
}

// next reads the next message. io.EOF: there is none.
func (b *body) next(into any) error {
	m, ok := into.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is no message", into)
	}
	b.left = b.exchange.config.MaxRequestBytes
	if !b.begun {
		b.exchange.readWithin(b.exchange.config.ReadTimeout)
	}
	var raw json.RawMessage
	err := b.decoder.Decode(&raw)
	if !b.begun {
		b.begun = true
		b.exchange.readWithin(0)
	}
	if err != nil {
		return b.reason(err)
	}
	parts := countParts(raw)
	switch {
	case parts > b.exchange.config.MaxParts:
		return errTooMany
	case !b.hold(int64(parts) * partBytes):
		return errNoRoom
	}
	if err := unmarshal.Unmarshal(raw, m); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// reason returns the error for the client of a body that cannot be read.
func (b *body) reason(err error) error {
	var timeout net.Error
	switch {
	case b.refused != nil:
		return b.refused
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.As(err, &timeout) && timeout.Timeout():
		return status.Error(codes.DeadlineExceeded, "the request did not come in time")
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// discard reads and drops the rest of a body, so that the end of the connection is noticed. It
// fails if there is too much.
func (b *body) discard() error {
	b.left = b.exchange.config.MaxRequestBytes
	b.exchange.readWithin(b.exchange.config.ReadTimeout)
	defer b.exchange.readWithin(0)
	buffer := make([]byte, 4<<10)
	for b.left > 0 {
		_, err := b.read(buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return b.reason(err)
		}
	}
	return errTooLarge
}

// countParts counts the objects, lists and elements of a JSON value, which take memory of their
// own.
func countParts(raw []byte) (n int) {
	quoted := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '[' || c == ','):
			n++
		}
	}
	return n
}

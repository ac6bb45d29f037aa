package wire

import (
	"fmt"
	"math/bits"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// MaxMessageBytes bounds one message: the largest transaction (64 MiB) with its overhead.
const MaxMessageBytes = transport.MaxMessageBytes

// Codec is the gRPC codec of all Tidemark connections: generated marshalling for messages that have
// it, reflection for others. It is passed to servers and connections by option (ServerOptions,
// Dialer) and never registered globally.
//
// The messages of the data path are decoded without copying their byte fields: those alias one
// buffer made for that message, which is never reused. See the package comment for what that means
// for retention.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name implements encoding.CodecV2. It is the standard name, because the bytes are standard
// protobuf.
func (Codec) Name() string { return "proto" }

// generatedMessage is a message that is marshalled without reflection. It is also an Aliasing or a
// copying message.
type generatedMessage interface {
	proto.Message
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

// Aliasing is a message of the data path (kvpb, peerpb), whose byte fields are decoded without
// copying.
type Aliasing interface {
	proto.Message
	UnmarshalVTUnsafe([]byte) error
}

// copying is a message of the cluster's tables (clusterpb), whose fields are copied because it is
// kept for long.
type copying interface {
	proto.Message
	UnmarshalVT([]byte) error
}

// Encoder is a message that encodes itself for a gRPC connection, because it must know when its
// encoding has been sent.
type Encoder interface {
	Encode() (mem.BufferSlice, error)
}

// Arrival is passed to gRPC by a receiver in place of a message, so that it learns of the encoded
// message before that is decoded.
type Arrival interface {
	// Arrived is called with the length of the encoding, and returns the message to decode into.
	Arrived(bytes int) (message any)
	// Admit reports whether a message with this encoding and shape may be decoded. If not, the
	// codec leaves the message unchanged and returns no error, because gRPC would answer the call
	// with an error of its own: the receiver knows what it has refused.
	Admit(encoded []byte, s *Shape) bool
}

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case Encoder:
		return m.Encode()
	case generatedMessage:
		size := m.SizeVT()
		b := Buffers.Get(size)
		n, err := m.MarshalToSizedBufferVT(*b)
		if err == nil && n != size {
			err = fmt.Errorf("wrote %d of %d bytes: the message was changed meanwhile", n, size)
		}
		if err != nil {
			Buffers.Put(b)
			return nil, fmt.Errorf("marshal %T: %w", v, err)
		}
		return mem.BufferSlice{mem.NewBuffer(b, Buffers)}, nil
	case proto.Message:
		b, err := proto.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("marshal %T: %w", v, err)
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return nil, fmt.Errorf("marshal %T: not a protobuf message", v)
}

// Unmarshal implements encoding.CodecV2. On error the message is in an undefined state.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	arrival, _ := v.(Arrival)
	if arrival != nil {
		v = arrival.Arrived(data.Len())
	}
	switch m := v.(type) {
	case Aliasing:
		b := ownedCopy(data)
		if arrival != nil && !arrival.Admit(b, shapeOfInput(m)) {
			return nil
		}
		return UnmarshalOwned(b, m)
	case copying:
		b := data.MaterializeToBuffer(Buffers)
		defer b.Free()
		if arrival != nil && !arrival.Admit(b.ReadOnlyData(), shapeOfInput(m)) {
			return nil
		}
		if err := CheckParts(b.ReadOnlyData(), m); err != nil {
			return err
		}
		return m.UnmarshalVT(b.ReadOnlyData())
	case proto.Message:
		b := data.MaterializeToBuffer(Buffers)
		defer b.Free()
		if arrival != nil && !arrival.Admit(b.ReadOnlyData(), OtherShape(m)) {
			return nil
		}
		if err := checkOtherParts(b.ReadOnlyData(), m); err != nil {
			return err
		}
		return proto.Unmarshal(b.ReadOnlyData(), m)
	}
	return fmt.Errorf("unmarshal %T: not a protobuf message", v)
}

// UnmarshalOwned decodes a message of the data path from bytes that the message may alias.
func UnmarshalOwned(b []byte, m Aliasing) error {
	if err := CheckParts(b, m); err != nil {
		return err
	}
	return m.UnmarshalVTUnsafe(b)
}

// ownedCopy returns a copy of the bytes that belongs to the message that aliases it.
func ownedCopy(data mem.BufferSlice) []byte {
	if len(data) == 1 {
		return append([]byte(nil), data[0].ReadOnlyData()...) // make would clear the memory
	}
	return data.Materialize()
}

// VarintSize is the length of x as a protobuf varint.
func VarintSize(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

// CloneRequest returns a copy of a request in a buffer of its own. The requests of one message
// share the message's buffer, which lives as long as any of them: a request that may wait for long
// is cloned, so that it keeps only its own memory, and not a message of up to MaxMessageBytes.
func CloneRequest(q *kvpb.Request) *kvpb.Request {
	b, err := q.MarshalVT()
	if err != nil {
		return q
	}
	own := new(kvpb.Request)
	if err := own.UnmarshalVTUnsafe(b); err != nil {
		return q
	}
	return own
}

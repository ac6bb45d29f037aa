package rpc

import (
	"fmt"
	"math/bits"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// MaxMessageBytes bounds one message: the largest transaction (64 MiB) and what surrounds it.
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

// generatedMessage is a message that is marshalled without reflection. It is also an aliasing or a
// copying one.
type generatedMessage interface {
	proto.Message
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

// aliasing is a message of the data path (kvpb, peerpb), whose byte fields are decoded without
// copying.
type aliasing interface {
	proto.Message
	UnmarshalVTUnsafe([]byte) error
}

// copying is a message of the cluster's tables (clusterpb), which is kept for long.
type copying interface {
	proto.Message
	UnmarshalVT([]byte) error
}

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *bounded:
		b, err := m.marshal()
		if err != nil {
			return nil, fmt.Errorf("marshal %T: %w", m.Message, err)
		}
		return b, nil
	case generatedMessage:
		size := m.SizeVT()
		b := buffers.Get(size)
		n, err := m.MarshalToSizedBufferVT(*b)
		if err == nil && n != size {
			err = fmt.Errorf("wrote %d of %d bytes: the message was changed meanwhile", n, size)
		}
		if err != nil {
			buffers.Put(b)
			return nil, fmt.Errorf("marshal %T: %w", v, err)
		}
		return mem.BufferSlice{mem.NewBuffer(b, buffers)}, nil
	case proto.Message:
		b, err := proto.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("marshal %T: %w", v, err)
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return nil, fmt.Errorf("marshal %T: not a protobuf message", v)
}

// Unmarshal implements encoding.CodecV2. On error the message is in an undefined state. A message
// for which there is no memory is not decoded, without an error, since gRPC would answer the call
// with an error of its own: who receives the message looks at messageMemory.refused.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	var memory *messageMemory
	if one, ok := v.(*arrival); ok {
		one.bytes = messagePrefixBytes + int64(data.Len())
		v, memory = one.message, one.memory
	}
	switch m := v.(type) {
	case aliasing:
		b := ownedCopy(data)
		if !memory.take(b, shapes[m.ProtoReflect().Descriptor().FullName()]) {
			return nil
		}
		return unmarshalOwned(b, m)
	case copying:
		b := data.MaterializeToBuffer(buffers)
		defer b.Free()
		if !memory.take(b.ReadOnlyData(), shapes[m.ProtoReflect().Descriptor().FullName()]) {
			return nil
		}
		if err := checkParts(b.ReadOnlyData(), m); err != nil {
			return err
		}
		return m.UnmarshalVT(b.ReadOnlyData())
	case proto.Message:
		b := data.MaterializeToBuffer(buffers)
		defer b.Free()
		if !memory.take(b.ReadOnlyData(), otherShape(m)) {
			return nil
		}
		if err := checkOtherParts(b.ReadOnlyData(), m); err != nil {
			return err
		}
		return proto.Unmarshal(b.ReadOnlyData(), m)
	}
	return fmt.Errorf("unmarshal %T: not a protobuf message", v)
}

// unmarshalOwned decodes a message of the data path from bytes that the message may alias.
func unmarshalOwned(b []byte, m aliasing) error {
	if err := checkParts(b, m); err != nil {
		return err
	}
	return m.UnmarshalVTUnsafe(b)
}

// ownedCopy gives the bytes in a buffer that belongs to what aliases it, and goes when that goes.
func ownedCopy(data mem.BufferSlice) []byte {
	if len(data) == 1 {
		return append([]byte(nil), data[0].ReadOnlyData()...) // spares the clearing that make would do
	}
	return data.Materialize()
}

// varintSize is the length of x as a protobuf varint.
func varintSize(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

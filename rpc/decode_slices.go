package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// sliceBytes is how many bytes of a message are decoded at a time: up to a thousand parts, which
// take about 0.1 ms.
const sliceBytes = 2 << 10

// decodeSlices decodes a message from bytes that the message may alias, as UnmarshalVTUnsafe does,
// and calls between regularly: a message of a few hundred KiB may have so many parts that decoding
// takes tens of milliseconds.
//
// It relies on decoding being additive: the parts of an encoding may be decoded one after the other
// into the same message. Message fields larger than a slice are decoded in slices, too.
func decodeSlices(b []byte, m wire.Aliasing, between func()) error {
	fields := m.ProtoReflect().Descriptor().Fields()
	slice := 0 // b[:slice] holds whole fields, to be decoded
	flush := func() error {
		between()
		err := m.UnmarshalVTUnsafe(b[:slice])
		b, slice = b[slice:], 0
		return err
	}
	for slice < len(b) {
		number, kind, tag := protowire.ConsumeTag(b[slice:])
		if tag < 0 {
			return fmt.Errorf("the message is not valid: %w", protowire.ParseError(tag))
		}
		n := protowire.ConsumeFieldValue(number, kind, b[slice+tag:])
		if n < 0 {
			return fmt.Errorf("the message is not valid: %w", protowire.ParseError(n))
		}
		if slice > 0 && slice+tag+n > sliceBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		if kind == protowire.BytesType && tag+n > sliceBytes {
			if part := partOf(m, fields.ByNumber(number)); part != nil {
				content, _ := protowire.ConsumeBytes(b[tag:])
				if err := decodeSlices(content, part, between); err != nil {
					return err
				}
				b = b[tag+n:]
				continue
			}
		}
		slice += tag + n
	}
	return flush()
}

// partOf returns the message into which the content of a field is decoded; nil if the field is not
// a message.
func partOf(m wire.Aliasing, field protoreflect.FieldDescriptor) wire.Aliasing {
	if field == nil || field.Message() == nil || field.IsMap() {
		return nil
	}
	value := m.ProtoReflect().Mutable(field)
	if field.IsList() {
		value = value.List().AppendMutable()
	}
	return value.Message().Interface().(wire.Aliasing)
}

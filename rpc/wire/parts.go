package wire

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// An empty sub-message takes two bytes on the wire and a hundred in memory, so a message within its
// limit of bytes may decode to gigabytes. Therefore the parts of large messages are counted before
// decoding. Small messages cannot grow far, and are not counted.
//
// The parts are, following the descriptors, all sub-messages and all elements of lists, at any
// depth, of every message that a server accepts. Bytes of the user's content are never parsed.
const (
	// countedFrom is the size from which a message is counted: 1 MiB grows to some 80 MiB at worst.
	countedFrom = 1 << 20
	// MaxRequestParts bounds requests together with their operations, keys and spans. The largest
	// transaction has 100,000 writes, and as many reads.
	MaxRequestParts = 1 << 18
	// MaxMessageParts bounds Raft messages together with their entries, and all other messages.
	MaxMessageParts = 1 << 20
)

// Shape says which fields of a message type have parts to count.
type Shape struct {
	// fields holds the shapes of the sub-messages and of the elements of lists, by field number;
	// nil for fields that are not counted. Empty if the message, or element, has no parts of its
	// own.
	fields []*Shape
	// numbers is set for a list of numbers, which are packed in one field; width is the bytes of
	// each, 0 if that varies.
	numbers bool
	width   int
}

// numbersIn returns how many numbers a packed list has. Numbers of varying length end with the
// first byte below 128.
func (s *Shape) numbersIn(content []byte) (n int) {
	if s.width > 0 {
		return (len(content) + s.width - 1) / s.width
	}
	for _, b := range content {
		if b < 0x80 {
			n++
		}
	}
	return n
}

// widths holds the bytes of the numbers of fixed length.
var widths = map[protoreflect.Kind]int{protoreflect.Fixed32Kind: 4, protoreflect.Sfixed32Kind: 4,
	protoreflect.FloatKind: 4, protoreflect.Fixed64Kind: 8, protoreflect.Sfixed64Kind: 8,
	protoreflect.DoubleKind: 8}

// shapes holds the shapes of the messages that servers accept: the inputs of all methods, and the
// messages of peers.
var shapes = func() map[protoreflect.FullName]*Shape {
	known := make(map[protoreflect.FullName]*Shape)
	inputs := make(map[protoreflect.FullName]*Shape)
	for _, file := range []protoreflect.FileDescriptor{kvpb.File_kvpb_kv_proto,
		peerpb.File_peerpb_peer_proto, clusterpb.File_clusterpb_cluster_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				input := methods.Get(j).Input()
				inputs[input.FullName()] = ShapeOf(input, known)
			}
		}
	}
	// MessageBatch comes on connections of package transport only.
	batch := new(peerpb.MessageBatch).ProtoReflect().Descriptor()
	inputs[batch.FullName()] = ShapeOf(batch, known)
	return inputs
}()

// shapeOfInput returns the shape of a message of the data path or of the cluster's tables; nil if
// servers accept no such messages.
func shapeOfInput(m proto.Message) *Shape {
	return shapes[m.ProtoReflect().Descriptor().FullName()]
}

// otherShapes holds the shapes of messages of other packages' services, by full names. Each is made
// when its message is first decoded.
var otherShapes sync.Map

// OtherShape returns the shape of a message of another package's service.
func OtherShape(m proto.Message) *Shape {
	descriptor := m.ProtoReflect().Descriptor()
	if s, ok := otherShapes.Load(descriptor.FullName()); ok {
		return s.(*Shape)
	}
	s, _ := otherShapes.LoadOrStore(descriptor.FullName(),
		ShapeOf(descriptor, make(map[protoreflect.FullName]*Shape)))
	return s.(*Shape)
}

// checkOtherParts is checkParts for a message of another package's service. Its content comes from
// clients, as that of requests does.
func checkOtherParts(b []byte, m proto.Message) error {
	if len(b) < countedFrom {
		return nil
	}
	return OtherShape(m).check(b, MaxRequestParts)
}

// ShapeOf makes the shape of a type; known holds the shapes made before.
func ShapeOf(message protoreflect.MessageDescriptor,
	known map[protoreflect.FullName]*Shape) *Shape {
	if s := known[message.FullName()]; s != nil {
		return s
	}
	s := new(Shape)
	known[message.FullName()] = s
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		var part *Shape
		switch {
		case field.Message() != nil:
			part = ShapeOf(field.Message(), known)
		case field.Cardinality() == protoreflect.Repeated:
			part = &Shape{numbers: field.IsPacked(), width: widths[field.Kind()]}
		default:
			continue
		}
		if missing := int(field.Number()) + 1 - len(s.fields); missing > 0 {
			s.fields = append(s.fields, make([]*Shape, missing)...)
		}
		s.fields[field.Number()] = part
	}
	return s
}

// CheckParts refuses the encoding of a message that has too many parts. Small messages, and
// messages that servers do not accept, pass.
func CheckParts(b []byte, m proto.Message) error {
	if len(b) < countedFrom {
		return nil
	}
	s := shapeOfInput(m)
	if s == nil {
		return nil
	}
	limit := MaxMessageParts
	if _, ok := m.(*kvpb.BatchRequest); ok {
		limit = MaxRequestParts
	}
	return s.check(b, limit)
}

// check refuses the encoding of a message that has more parts than limit.
func (s *Shape) check(b []byte, limit int) error {
	count, err := s.Count(b, limit)
	if err == nil && count > limit {
		err = fmt.Errorf("the message has more than %d parts", limit)
	}
	return err
}

// PartBytes estimates the memory of a part, besides its content.
const PartBytes = 128

// DecodedSize estimates the memory of a decoded message of the data path. b is its encoding, which
// has been checked. Up to smallMessage its parts are not counted.
func DecodedSize(b []byte, m proto.Message) int {
	if len(b) <= SmallMessage {
		return len(b)
	}
	return shapeOfInput(m).Memory(b)
}

// Memory estimates the memory of a decoded message in bytes. A nil shape has no parts. Invalid
// encodings are refused by decoding.
func (s *Shape) Memory(b []byte) int {
	if s == nil {
		return len(b)
	}
	parts, _ := s.Count(b, MaxMessageParts)
	return len(b) + parts*PartBytes
}

// SmallMessage is the size of an encoding that has some fifty empty parts at most.
const SmallMessage = 128

// part returns the shape of a field; nil if it is not counted.
func (s *Shape) part(number protowire.Number) *Shape {
	if int64(number) >= int64(len(s.fields)) {
		return nil
	}
	return s.fields[number]
}

// Count counts the parts of an encoded message, up to a little more than limit. It refuses invalid
// encodings: decoding accepts some of them (field numbers beyond 32 bits, for one), and would go on
// where counting could not.
func (s *Shape) Count(b []byte, limit int) (count int, err error) {
	for len(b) > 0 && count <= limit {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return count, fmt.Errorf("the message is not valid: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return count, fmt.Errorf("the message is not valid: %w", protowire.ParseError(n))
			}
			b = b[n:]
			if part := s.part(number); part != nil && part.numbers {
				count++ // a list of numbers need not be packed
			}
			continue
		}
		content, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return count, fmt.Errorf("the message is not valid: %w", protowire.ParseError(n))
		}
		b = b[n:]
		part := s.part(number)
		if part == nil {
			continue
		}
		if part.numbers {
			count += part.numbersIn(content)
			continue
		}
		count++
		if len(part.fields) > 0 {
			inside, err := part.Count(content, limit-count)
			count += inside
			if err != nil {
				return count, err
			}
		}
	}
	return count, nil
}

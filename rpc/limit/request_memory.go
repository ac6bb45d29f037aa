package limit

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// defaultRequestMemory is the default bound, in bytes.
	defaultRequestMemory = 1 << 30
	// grantedBytes is what a principal may have whatever its share.
	grantedBytes = 1 << 20
	// countedCall is the size from which the message of a gRPC call is counted. A smaller one
	// decodes to 64 KiB at most.
	countedCall = 1 << 10
)

// RequestMemory bounds the memory of clients' requests and gRPC calls, and of a BatchServer's
// responses. Principals share it (package quota). Safe for concurrent use.
type RequestMemory struct{ bytes *quota.Bytes }

// NewRequestMemory returns a bound in bytes (default 1 GiB).
func NewRequestMemory(limit int64) *RequestMemory {
	if limit <= 0 {
		limit = defaultRequestMemory
	}
	return &RequestMemory{quota.NewBytes(limit, grantedBytes)}
}

// Held returns how many bytes are taken.
func (m *RequestMemory) Held() int64 { return m.bytes.Held() }

// errNoCallMemory is the error of a call for whose message there is no memory. The text begins like
// etcd's, which clients of etcd recognize.
var errNoCallMemory = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: this "+
	"server has no memory for the message of the call, or has given this client's host its share; "+
	"try again later")

// errNoMoreCalls is the error of a call for which there is no memory.
var errNoMoreCalls = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+
	"more calls and streams are open than this server has memory for; end some of them")

// errCallEnded is the error of receiving a message after the call's handler has ended.
var errCallEnded = status.Error(codes.Canceled, "the call has ended")

// CallTooLarge returns the error of a call whose decoded request takes more memory than a principal
// can ever have, which is most bytes. Repeating the call is useless. The text begins like etcd's
// for a request above its bound.
func CallTooLarge(bytes, most int64) error {
	return status.Errorf(codes.InvalidArgument, "etcdserver: request is too large: it takes %d bytes "+
		"of memory when it is decoded, and this server has %d bytes at most for one request: send "+
		"less in a request, or give the server a higher --memory-limit", bytes, most)
}

// messageMemory is the memory of the decoded message of a gRPC call. Its size is computed from the
// encoding before decoding, because the encoding of a part can be a hundred times smaller than the
// part.
//
// A handler may end while another goroutine still receives a message of its stream and takes memory
// for it. So the lock orders take and end: nothing is taken after end, because nothing would return
// it.
type messageMemory struct {
	// of is nil if the call is not counted.
	of        *quota.Bytes
	principal string

	mu    sync.Mutex
	taken int64
	// ofCall is the memory of the call itself, besides its message.
	ofCall int64
	// ended is set by end.
	ended bool

	// refused is why the message was not decoded; nil: it was. It belongs to the goroutine that
	// receives.
	refused error
}

// of returns an empty messageMemory for one message of a principal.
func (m *RequestMemory) of(principal string) *messageMemory {
	return &messageMemory{of: m.bytes, principal: principal}
}

// take takes the memory of a message, given its encoding and shape. It returns false if there is
// not enough. A nil shape has no parts.
func (m *messageMemory) take(b []byte, s *wire.Shape) bool {
	if m == nil || m.of == nil || len(b) < countedCall {
		return true
	}
	n := int64(s.Memory(b))
	if most := m.of.Most(); n > most {
		m.refused = CallTooLarge(n, most)
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		m.refused = errCallEnded
		return false
	}
	if !m.of.Take(m.principal, n) {
		m.refused = errNoCallMemory
		return false
	}
	m.taken += n
	return true
}

// takeCall takes the memory of an open call. It returns false if there is not enough.
func (m *messageMemory) takeCall() bool {
	if !m.of.Take(m.principal, OpenCallBytes) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ofCall = OpenCallBytes
	return true
}

// end returns all memory when the call is over.
func (m *messageMemory) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.giveLocked()
	if m.ofCall > 0 {
		m.of.Give(m.principal, m.ofCall)
		m.ofCall = 0
	}
}

// give returns the memory of the message, which is not used any more.
func (m *messageMemory) give() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.giveLocked()
}

func (m *messageMemory) giveLocked() {
	if m.taken > 0 {
		m.of.Give(m.principal, m.taken)
		m.taken = 0
	}
}

// DecodedBytes estimates the memory of a decoded message that a client has sent, as RequestMemory
// counts it.
func DecodedBytes(m proto.Message) int64 {
	size := proto.Size(m)
	if size < countedCall {
		return int64(size)
	}
	return int64(size) + int64(partsOfMessage(m.ProtoReflect()))*wire.PartBytes
}

// partsOfMessage counts the parts of a decoded message, as shape.count does for its encoding.
func partsOfMessage(m protoreflect.Message) (count int) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsList():
			list := v.List()
			count += list.Len()
			for i := 0; field.Message() != nil && i < list.Len(); i++ {
				count += partsOfMessage(list.Get(i).Message())
			}
		case field.IsMap():
			count += v.Map().Len()
			if field.MapValue().Message() == nil {
				break
			}
			v.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
				count += 1 + partsOfMessage(value.Message())
				return true
			})
		case field.Message() != nil:
			count += 1 + partsOfMessage(v.Message())
		}
		return true
	})
	return count
}

package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// maxStreamCalls bounds the calls of one stream that are under way.
	maxStreamCalls = 2048
	// callBytes is about what a call takes besides its request: a goroutine, most of all.
	callBytes = 16 << 10
	// idleCallers is how many goroutines wait for calls. The stack of one that has served some has
	// grown to what a call needs.
	idleCallers = 64
)

// CallServer answers the calls on clients' connections (kvpb.Call) with the handlers of gRPC
// services. A handler sees no difference from a call of gRPC, except that there are no headers to
// send and no transport stream; it judges its callers. Methods with streams are not served, and
// one that waits for other clients should not be registered: that a caller has given up is noticed
// when its connection ends.
//
// Register services before the BatchServer serves whose BatchServerConfig.Calls it is.
type CallServer struct {
	config  CallServerConfig
	methods map[string]*calledMethod

	// queue hands calls to the goroutines that wait for one; idle counts these.
	queue   chan *serverCall
	idle    atomic.Int32
	stop    chan struct{}
	closing sync.Once
	running sync.WaitGroup
	// draining says that no more calls begin.
	draining atomic.Bool
}

var _ grpc.ServiceRegistrar = (*CallServer)(nil)

// calledMethod is one method.
type calledMethod struct {
	name    string
	service any
	handler grpc.MethodHandler
	// shape is that of its requests.
	shape *wire.Shape
}

// CallServerConfig configures a CallServer.
type CallServerConfig struct {
	// Better gives the address at which calls are answered with fewer steps in between, "" for none.
	// It is asked for each call. nil: there is none.
	Better func() string
	// Quick says of a method whether calls of it mostly end without waiting for anything, at present:
	// those of a message are then served one after the other, by the goroutine that reads, and on if
	// it takes long. nil: no method's.
	Quick func(method string) bool
	// Share gives the context for quick calls of one message, which are done one after the other, and
	// had all come before; end is called after the last. nil: they share nothing.
	Share func(context.Context) (_ context.Context, end func())
}

// NewCallServer makes a server of calls. Close ends it.
func NewCallServer(c CallServerConfig) *CallServer {
	if c.Better == nil {
		c.Better = func() string { return "" }
	}
	if c.Quick == nil {
		c.Quick = func(string) bool { return false }
	}
	if c.Share == nil {
		c.Share = func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	}
	return &CallServer{config: c, methods: make(map[string]*calledMethod),
		queue: make(chan *serverCall), stop: make(chan struct{})}
}

// RegisterService implements grpc.ServiceRegistrar. It panics if the service is not one of a
// protobuf file that is linked in.
func (s *CallServer) RegisterService(d *grpc.ServiceDesc, service any) {
	for _, m := range d.Methods {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(
			protoreflect.FullName(d.ServiceName + "." + m.MethodName))
		method, ok := found.(protoreflect.MethodDescriptor)
		if err != nil || !ok {
			panic("rpc: no descriptor of the method " + d.ServiceName + "." + m.MethodName)
		}
		name := "/" + d.ServiceName + "/" + m.MethodName
		s.methods[name] = &calledMethod{name: name, service: service, handler: m.Handler,
			shape: wire.ShapeOf(method.Input(), make(map[protoreflect.FullName]*wire.Shape))}
	}
}

// Drain has calls that arrive from now on refused before they are made: their callers make them at
// another server. It is for a server that is about to end, before BatchServer.Drain, which then
// waits for all calls that were not refused.
func (s *CallServer) Drain() { s.draining.Store(true) }

// Close ends the goroutines that wait for calls. No call may come any more.
func (s *CallServer) Close() {
	s.closing.Do(func() { close(s.stop) })
	s.running.Wait()
}

// checkedCall is what was found out of a call before it is made: what it takes in memory beside its
// encoding, how many parts its request has, and why it is refused, if it is.
type checkedCall struct {
	bytes, parts int
	refusal      *kvpb.Error
}

// check looks at the calls among requests; nil if there are none. It may be called on nil.
func (s *CallServer) check(requests []*kvpb.Request) (checked []checkedCall) {
	for i, r := range requests {
		if r.Call == nil {
			continue
		}
		if checked == nil {
			checked = make([]checkedCall, len(requests))
		}
		checked[i] = s.checkOne(r.Call)
	}
	return checked
}

func (s *CallServer) checkOne(c *kvpb.Call) checkedCall {
	var m *calledMethod
	if s != nil {
		m = s.methods[c.Method]
	}
	switch {
	case m == nil:
		return refusedCall("this server answers no such call here: call it by gRPC")
	case len(c.Message) > wire.MaxCallBytes:
		return refusedCall("the request of a call has at most %d bytes here, this one has %d: call it "+
			"by gRPC", wire.MaxCallBytes, len(c.Message))
	case len(c.Token) > wire.MaxTokenBytes:
		return refusedCall("a token has at most %d bytes", wire.MaxTokenBytes)
	case len(c.Message) <= wire.SmallMessage:
		return checkedCall{bytes: callBytes}
	}
	parts, err := m.shape.Count(c.Message, wire.MaxRequestParts)
	if err != nil {
		return refusedCall("%v", err)
	}
	return checkedCall{bytes: callBytes + parts*wire.PartBytes, parts: parts}
}

// partsOfCalls is how many parts calls have that were checked.
func partsOfCalls(checked []checkedCall) (parts int) {
	for _, c := range checked {
		parts += c.parts
	}
	return parts
}

func refusedCall(format string, args ...any) checkedCall {
	return checkedCall{refusal: &kvpb.Error{Code: kvpb.ErrorCode_INVALID_ARGUMENT,
		Message: fmt.Sprintf(format, args...)}}
}

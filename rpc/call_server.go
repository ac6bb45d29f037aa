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
	// maxStreamCalls bounds the calls under way on one stream.
	maxStreamCalls = 2048
	// callBytes estimates the memory of a call besides its request, mostly that of its goroutine.
	callBytes = 16 << 10
	// idleCallers is how many goroutines wait for calls. They are reused because their stacks have
	// grown to the size that a call needs.
	idleCallers = 64
)

// CallServer answers the calls on clients' connections (kvpb.Call) with the handlers of gRPC
// services. For a handler a call is like a call of gRPC, except that it cannot send headers and has
// no transport stream; the handler authorizes its callers. Methods with streams are not served. A
// method that waits for other clients should not be registered, because a caller that gives up is
// noticed only when its connection ends.
//
// Register services before the BatchServer with this CallServer in its configuration serves.
type CallServer struct {
	config  CallServerConfig
	methods map[string]*calledMethod

	// queue hands calls to the idle goroutines; idle counts them.
	queue   chan *serverCall
	idle    atomic.Int32
	stop    chan struct{}
	closing sync.Once
	running sync.WaitGroup
	// draining is set when no further call may begin.
	draining atomic.Bool
}

var _ grpc.ServiceRegistrar = (*CallServer)(nil)

// calledMethod is a registered method.
type calledMethod struct {
	name    string
	service any
	handler grpc.MethodHandler
	// shape is the shape of its requests.
	shape *wire.Shape
}

// CallServerConfig configures a CallServer.
type CallServerConfig struct {
	// Better returns the address of a server that answers calls with fewer hops, "" for none. It is
	// called for each call. nil: there is none.
	Better func() string
	// Quick reports whether calls of a method mostly end without waiting, at present. Such calls in
	// one message are served one after the other by the reading goroutine, and by others if they
	// take long. nil: no method is quick.
	Quick func(method string) bool
	// Share makes the context for the quick calls of one message, which are served one after the
	// other and had all arrived before the first began; end is called after the last. nil: they
	// share nothing.
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

// Drain refuses calls that arrive from now on before they are made, so that their callers make them
// at another server. A server that is about to end calls it before BatchServer.Drain, which then
// waits for all calls that were not refused.
func (s *CallServer) Drain() { s.draining.Store(true) }

// Close ends the idle goroutines. No call may arrive any more.
func (s *CallServer) Close() {
	s.closing.Do(func() { close(s.stop) })
	s.running.Wait()
}

// checkedCall is the result of checking a call before it is made: its memory besides its encoding,
// the number of parts of its request, and the reason for refusing it, if any.
type checkedCall struct {
	bytes, parts int
	refusal      *kvpb.Error
}

// check checks the calls among requests; nil if there are none. s may be nil.
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

// partsOfCalls returns the number of parts of the checked calls together.
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

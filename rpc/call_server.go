package rpc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// MaxCallBytes bounds the request of a call on a client's connection. A larger one is for gRPC.
	MaxCallBytes = 64 << 10
	// maxStreamCalls bounds the calls of one stream that are under way.
	maxStreamCalls = 2048
	// callBytes is about what a call takes besides its request: a goroutine, most of all.
	callBytes = 16 << 10
	// idleCallers is how many goroutines wait for calls. The stack of one that has served some has
	// grown to what a call needs.
	idleCallers = 64
)

// Fields of gRPC's metadata that a kvpb.Call has fields for.
const (
	tokenKey         = "token"
	requireLeaderKey = "hasleader"
)

// CallServer answers the calls on clients' connections (kvpb.Call) with the handlers of gRPC
// services. A handler sees no difference from a call of gRPC, except that there are no headers to
// send and no transport stream; it judges who may call it. Methods with streams are not served, and
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
}

var _ grpc.ServiceRegistrar = (*CallServer)(nil)

// calledMethod is one method.
type calledMethod struct {
	service any
	handler grpc.MethodHandler
	// shape is that of its requests.
	shape *shape
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
		s.methods["/"+d.ServiceName+"/"+m.MethodName] = &calledMethod{service: service,
			handler: m.Handler,
			shape:   shapeOf(method.Input(), make(map[protoreflect.FullName]*shape))}
	}
}

// Close ends the goroutines that wait for calls. No call may come any more.
func (s *CallServer) Close() {
	s.closing.Do(func() { close(s.stop) })
	s.running.Wait()
}

// checkedCall is what was found out of a call before it is made: what it takes in memory, and why
// it is refused, if it is.
type checkedCall struct {
	bytes   int
	refusal *kvpb.Error
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
	case len(c.Message) > MaxCallBytes:
		return refusedCall("the request of a call has at most %d bytes here, this one has %d: call it "+
			"by gRPC", MaxCallBytes, len(c.Message))
	case len(c.Token) > maxTokenBytes:
		return refusedCall("a token has at most %d bytes", maxTokenBytes)
	case len(c.Message) <= smallMessage:
		return checkedCall{bytes: callBytes}
	}
	parts, err := m.shape.count(c.Message, maxRequestParts)
	if err != nil {
		return refusedCall("%v", err)
	}
	return checkedCall{bytes: callBytes + parts*partBytes}
}

func refusedCall(format string, args ...any) checkedCall {
	return checkedCall{refusal: &kvpb.Error{Code: kvpb.ErrorCode_INVALID_ARGUMENT,
		Message: fmt.Sprintf(format, args...)}}
}

// enterCall counts a call that is to begin; or says why it does not.
func (ss *serverStream) enterCall(c checkedCall) *kvpb.Error {
	if c.refusal != nil {
		return c.refusal
	}
	ss.out.mu.Lock()
	defer ss.out.mu.Unlock()
	if ss.calling >= maxStreamCalls {
		return &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED, Message: fmt.Sprintf(
			"%d calls of this stream are under way: wait for some of them", maxStreamCalls)}
	}
	ss.calling++
	return nil
}

// heldAnswer is what the answer to a call holds until the outbox's chunk of that number is sent.
type heldAnswer struct {
	chunk uint64
	claim *claim
}

// progressLocked is told when something was sent.
func (ss *serverStream) progressLocked() {
	sent := 0
	for sent < len(ss.held) && ss.held[sent].chunk < ss.out.mu.first {
		ss.held[sent].claim.give()
		sent++
	}
	if sent > 0 {
		ss.held = slices.Delete(ss.held, 0, sent)
	}
	ss.signalRoomLocked()
}

// serverCall is a call that is under way.
type serverCall struct {
	server  *CallServer
	stream  *serverStream
	id      uint64
	call    *kvpb.Call
	timeout time.Duration
}

// begin begins calls, without waiting for anything, and returns what is left to do for them; nil:
// nothing is. The calls hold the stream until they are answered.
func (s *CallServer) begin(ss *serverStream, requests []*kvpb.Request) Work {
	var quick *quickCalls
	for _, r := range requests {
		c := &serverCall{server: s, stream: ss, id: r.Id, call: r.Call,
			timeout: time.Duration(min(r.TimeoutMicros, uint64(maxCallTime.Microseconds()))) *
				time.Microsecond}
		ss.calls.Add(1)
		if s.config.Quick(r.Call.Method) {
			if quick == nil {
				quick = &quickCalls{server: s, ctx: ss.callContext}
			}
			quick.calls = append(quick.calls, c)
			continue
		}
		select {
		case s.queue <- c:
		default:
			s.running.Go(func() { s.work(c) })
		}
	}
	if quick == nil {
		return nil
	}
	return quick
}

// quickCalls are the quick calls of one message. They implement Work.
type quickCalls struct {
	server *CallServer
	ctx    context.Context
	calls  []*serverCall
	next   atomic.Int32
}

// Run implements Work.
func (q *quickCalls) Run() {
	ctx, end := q.server.config.Share(q.ctx)
	defer end()
	for {
		i := int(q.next.Add(1)) - 1
		if i >= len(q.calls) {
			return
		}
		q.calls[i].serve(ctx)
	}
}

// Done implements Work.
func (q *quickCalls) Done() {}

// bothWorks is the work of the commands and of the calls of one message.
type bothWorks [2]Work

// Run implements Work.
func (b bothWorks) Run() {
	for _, w := range b {
		w.Run()
	}
}

// Done implements Work.
func (b bothWorks) Done() {
	for _, w := range b {
		w.Done()
	}
}

// maxCallTime is the longest timeout of a call that counts: a duration has no room for all.
const maxCallTime = 24 * time.Hour

// work serves a call, and others that come while few goroutines wait for one.
func (s *CallServer) work(c *serverCall) {
	for {
		c.serve(c.stream.callContext)
		c = nil
		if s.idle.Add(1) <= idleCallers {
			select {
			case c = <-s.queue:
			case <-s.stop:
			}
		}
		s.idle.Add(-1)
		if c == nil {
			return
		}
	}
}

// serve serves the call in the stream's context of calls, or one made of that.
func (c *serverCall) serve(ctx context.Context) {
	defer c.stream.calls.Done()
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	if c.call.Token != "" || c.call.RequireLeader {
		fields := make(metadata.MD, 2)
		if c.call.Token != "" {
			fields[tokenKey] = []string{c.call.Token}
		}
		if c.call.RequireLeader {
			fields[requireLeaderKey] = []string{"true"}
		}
		ctx = metadata.NewIncomingContext(ctx, fields)
	}
	m := c.server.methods[c.call.Method]
	answer, err := m.handler(m.service, ctx, func(request any) error {
		message := mem.BufferSlice{mem.SliceBuffer(c.call.Message)}
		if err := (Codec{}).Unmarshal(message, request); err != nil {
			return status.Errorf(codes.Internal, "request of %s: %v", c.call.Method, err)
		}
		return nil
	}, nil)
	c.answer(answer, err)
}

// answer hands the outcome to the stream.
func (c *serverCall) answer(answer any, err error) {
	outcome := &kvpb.CallAnswer{Better: c.server.config.Better()}
	var held *claim
	if b, ok := answer.(*bounded); ok && err == nil {
		held = b.claim
		held.encoded.Store(true)
		answer = b.Message
	}
	if err == nil {
		m, ok := answer.(proto.Message)
		if !ok {
			err = status.Errorf(codes.Internal, "%s answers with %T", c.call.Method, answer)
		} else if outcome.Message, err = proto.Marshal(m); err == nil &&
			len(outcome.Message) > MaxMessageBytes/2 {
			err = status.Errorf(codes.ResourceExhausted, "the answer has %d bytes, which no message can "+
				"hold here: ask for less, or by gRPC", len(outcome.Message))
		}
	}
	if err != nil {
		outcome.Message = nil
		outcome.Status, err = proto.Marshal(status.Convert(asStatus(err)).Proto())
		if err != nil {
			outcome.Status, _ = proto.Marshal(status.New(codes.Internal, "status: "+err.Error()).Proto())
		}
	}
	c.stream.answer(&kvpb.Response{Id: c.id, Call: outcome}, held)
}

// asStatus is an error with a status, as gRPC makes one of what a handler returns.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// contextOfCalls is the context of a stream's calls.
func contextOfCalls(ctx context.Context, from *peer.Peer) context.Context {
	ctx = peer.NewContext(ctx, from)
	return Leaves(metadata.NewIncomingContext(ctx, metadata.MD{}))
}

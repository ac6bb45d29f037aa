package limit

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// messagePrefixBytes is the length of the prefix of each gRPC message.
const messagePrefixBytes = 5

// arrival records the length of a message when it is decoded. It implements wire.Arrival.
type arrival struct {
	message any
	// bytes is the length with the prefix; 0: no message has come.
	bytes int64
	// memory, if not nil, is the budget for the decoded message.
	memory *messageMemory
}

// Arrived implements wire.Arrival.
func (a *arrival) Arrived(bytes int) any {
	a.bytes = messagePrefixBytes + int64(bytes)
	return a.message
}

// Admit implements wire.Arrival.
func (a *arrival) Admit(encoded []byte, s *wire.Shape) bool { return a.memory.take(encoded, s) }

// Register registers a service whose calls with one request and one answer are counted. An
// interceptor cannot count these, because it is called after the request has come.
func (in *RecvBudget) Register(to grpc.ServiceRegistrar, d *grpc.ServiceDesc, service any) {
	counted := *d
	counted.Methods = slices.Clone(d.Methods)
	for i := range counted.Methods {
		counted.Methods[i].Handler = in.countedMethod(counted.Methods[i].Handler)
	}
	to.RegisterService(&counted, service)
}

func (in *RecvBudget) countedMethod(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		call := in.callOf(ctx)
		if call == nil {
			return handle(service, ctx, decode, interceptor)
		}
		memory := in.Memory.of(call.principal)
		defer memory.end()
		defer in.end(call)
		if err := in.begin(ctx, call, true, memory); err != nil {
			return nil, err
		}
		answer, err := handle(service, ctx, func(message any) error {
			one := arrival{message: message, memory: memory}
			err := decode(&one)
			if memory.refused != nil {
				err = memory.refused
			}
			if one.bytes > 0 {
				in.received(ctx, call, one.bytes)
			}
			if err != nil {
				call.throttle.penalize(penaltyOfCall)
			}
			return err
		}, interceptor)
		call.throttle.ended(err)
		return answer, err
	}
}

// CountStream is an interceptor that counts streams. It comes before all others, because they may
// refuse a stream.
func (in *RecvBudget) CountStream(service any, stream grpc.ServerStream,
	info *grpc.StreamServerInfo,
	handle grpc.StreamHandler) error {
	call := in.callOf(stream.Context())
	if call == nil {
		return handle(service, stream)
	}
	s := &recvStream{ServerStream: stream, in: in, call: call, memory: in.Memory.of(call.principal)}
	defer s.memory.end()
	defer in.end(call)
	if err := in.begin(stream.Context(), call, !info.IsClientStream, s.memory); err != nil {
		return err
	}
	err := handle(service, s)
	call.throttle.ended(err)
	return err
}

// recvStream is a stream whose messages are counted.
type recvStream struct {
	grpc.ServerStream
	in   *RecvBudget
	call *recvCall
	// next and memory, the latter of the message before, belong to the goroutine that receives.
	next   arrival
	memory *messageMemory
}

// RecvMsg implements grpc.ServerStream.
func (s *recvStream) RecvMsg(message any) error {
	s.memory.give()
	s.next = arrival{message: message, memory: s.memory}
	err := s.ServerStream.RecvMsg(&s.next)
	s.next.message = nil
	if s.memory.refused != nil {
		err = s.memory.refused
	}
	if s.next.bytes > 0 {
		s.in.received(s.Context(), s.call, s.next.bytes)
	}
	return err
}

// SendMsg implements grpc.ServerStream.
func (s *recvStream) SendMsg(message any) error {
	err := s.ServerStream.SendMsg(message)
	if err == nil {
		s.call.throttle.Use()
	}
	return err
}

// ended notes the result of a served gRPC call.
func (c *ConnThrottle) ended(err error) {
	switch status.Code(err) {
	case codes.OK:
		c.Use()
	case codes.PermissionDenied, codes.Unauthenticated:
		c.penalize(penaltyOfCall)
	}
}

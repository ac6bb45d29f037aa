package rpc

import (
	"context"
	"slices"

	"google.golang.org/grpc"
)

// messagePrefixBytes is how long what precedes each message of gRPC is.
const messagePrefixBytes = 5

// arrival is a message to be decoded of which it is noted how long it was. Codec knows it.
type arrival struct {
	message any
	// bytes is the length with the prefix; 0: no message has come.
	bytes int64
}

// countedServices registers services whose calls are counted.
type countedServices struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r countedServices) RegisterService(d *grpc.ServiceDesc, service any) {
	counted := *d
	counted.Methods = slices.Clone(d.Methods)
	for i := range counted.Methods {
		counted.Methods[i].Handler = countedMethod(counted.Methods[i].Handler)
	}
	counted.Streams = slices.Clone(d.Streams)
	for i := range counted.Streams {
		counted.Streams[i].Handler = countedStream(counted.Streams[i].Handler)
	}
	r.ServiceRegistrar.RegisterService(&counted, service)
}

func countedMethod(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := inboundOf(ctx)
		if c == nil {
			return handle(service, ctx, decode, interceptor)
		}
		c.begin()
		defer c.end()
		return handle(service, ctx, func(message any) error {
			one := arrival{message: message}
			err := decode(&one)
			c.out(one.bytes)
			return err
		}, interceptor)
	}
}

func countedStream(handle grpc.StreamHandler) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		c := inboundOf(stream.Context())
		if c == nil {
			return handle(service, stream)
		}
		c.begin()
		defer c.end()
		return handle(service, &inboundStream{ServerStream: stream, conn: c})
	}
}

// inboundStream is a stream whose messages are counted.
type inboundStream struct {
	grpc.ServerStream
	conn *inboundConn
	// next is for the one goroutine that receives.
	next arrival
}

// RecvMsg implements grpc.ServerStream.
func (s *inboundStream) RecvMsg(message any) error {
	s.next = arrival{message: message}
	err := s.ServerStream.RecvMsg(&s.next)
	s.next.message = nil
	s.conn.out(s.next.bytes)
	return err
}

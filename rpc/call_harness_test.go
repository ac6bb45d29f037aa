package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// The methods of the service that tests call. All but listMethod take and give bytes.
const (
	bytesMethod = "/test.Calls/Bytes"
	// quickMethod is quick, if a test says so.
	quickMethod = "/test.Calls/Quick"
	// listMethod takes a list of lists and gives how long it is.
	listMethod = "/test.Calls/List"
)

// The service's descriptor, which a CallServer needs.
func init() {
	method := func(name, input, output string) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: &name,
			InputType: proto.String(".google.protobuf." + input), OutputType: proto.String(
				".google.protobuf." + output)}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("rpc/call_harness_test.proto"), Package: proto.String("test"),
		Syntax: proto.String("proto3"),
		Dependency: []string{wrapperspb.File_google_protobuf_wrappers_proto.Path(),
			structpb.File_google_protobuf_struct_proto.Path()},
		Service: []*descriptorpb.ServiceDescriptorProto{{Name: proto.String("Calls"),
			Method: []*descriptorpb.MethodDescriptorProto{method("Bytes", "BytesValue", "BytesValue"),
				method("Quick", "BytesValue", "BytesValue"), method("List", "ListValue", "BytesValue")}}},
	}, protoregistry.GlobalFiles)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		panic(err)
	}
}

// bytesHandler answers a call of bytes with bytes.
type bytesHandler func(ctx context.Context, request []byte) (answer []byte, err error)

// callsOf is a service whose methods all do the same, with a request decoded.
func callsOf(
	handle func(ctx context.Context, request proto.Message) (any, error),
) *grpc.ServiceDesc {
	method := func(name string, request func() proto.Message) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context,
			decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := request()
			if err := decode(m); err != nil {
				return nil, err
			}
			return handle(ctx, m)
		}}
	}
	bytesValue := func() proto.Message { return &wrapperspb.BytesValue{} }
	return &grpc.ServiceDesc{ServiceName: "test.Calls", Methods: []grpc.MethodDesc{
		method("Bytes", bytesValue), method("Quick", bytesValue),
		method("List", func() proto.Message { return &structpb.ListValue{} })}}
}

// service is callsOf for bytes.
func (h bytesHandler) service() *grpc.ServiceDesc {
	return callsOf(func(ctx context.Context, request proto.Message) (any, error) {
		m, ok := request.(*wrapperspb.BytesValue)
		if !ok {
			return wrapperspb.Bytes(nil), nil
		}
		answer, err := h(ctx, m.Value)
		if err != nil {
			return nil, err
		}
		return wrapperspb.Bytes(answer), nil
	})
}

// echoBytes answers with what was asked.
func echoBytes(_ context.Context, request []byte) ([]byte, error) { return request, nil }

// quickIsQuick says so of quickMethod.
func quickIsQuick(method string) bool { return method == quickMethod }

// serveCalls serves a service at addr, by gRPC as well.
func serveCalls(t testing.TB, n network, addr string, service *grpc.ServiceDesc,
	calls CallServerConfig, change func(*BatchServerConfig)) (address string, server *BatchServer,
	called *CallServer) {
	t.Helper()
	called = NewCallServer(calls)
	t.Cleanup(called.Close) // when the server has stopped
	called.RegisterService(service, nil)
	c := BatchServerConfig{Handle: echoAll, Calls: called}
	if change != nil {
		change(&c)
	}
	server = NewBatchServer(c)
	address, _ = n.serve(t, addr, func(s *Server) {
		s.ServeClients(server)
		s.RegisterService(service, nil)
	})
	return address, server, called
}

// callOfBytes calls a method of bytes.
func callOfBytes(ctx context.Context, b *client.BatchConn, method string, request []byte,
	o client.CallOptions) (answer []byte, better string, err error) {
	m := &wrapperspb.BytesValue{}
	better, err = b.Call(ctx, method, wrapperspb.Bytes(request), m, o)
	return m.Value, better, err
}

// callRequest is a request that calls a method of bytes.
func callRequest(id uint64, method string, request []byte) *kvpb.Request {
	encoded, err := proto.Marshal(wrapperspb.Bytes(request))
	if err != nil {
		panic(err)
	}
	return &kvpb.Request{Id: id, Call: &kvpb.Call{Method: method, Message: encoded}}
}

// receiveAll receives responses until so many have come, by their ids.
func receiveAll(t testing.TB, stream byHand, count int) map[uint64]*kvpb.Response {
	t.Helper()
	all := make(map[uint64]*kvpb.Response)
	for len(all) < count {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %d of %d responses: %v", len(all), count, err)
		}
		for _, r := range m.Responses {
			if all[r.Id] != nil {
				t.Fatalf("a second response to %d", r.Id)
			}
			all[r.Id] = r
		}
	}
	return all
}

// answered is what a call of bytes was answered with.
func answered(t testing.TB, r *kvpb.Response) string {
	t.Helper()
	m := &wrapperspb.BytesValue{}
	if r.GetError() != nil || r.GetCall() == nil || len(r.Call.Status) > 0 {
		t.Fatalf("no answer: %v", r)
	}
	if err := proto.Unmarshal(r.Call.Message, m); err != nil {
		t.Fatal(err)
	}
	return string(m.Value)
}

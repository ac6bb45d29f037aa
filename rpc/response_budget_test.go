package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// blobs answers calls with as many bytes as they ask for.
func blobs(a *limit.ResponseBudget) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: "test.Blobs", Methods: []grpc.MethodDesc{{
		MethodName: "Get",
		Handler: func(_ any, ctx context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			size := &wrapperspb.UInt64Value{}
			if err := decode(size); err != nil {
				return nil, err
			}
			m := wrapperspb.Bytes(make([]byte, size.Value))
			return a.Bound(ctx, m, proto.Size(m))
		}}, {
		MethodName: "Put",
		Handler: func(_ any, _ context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			got := &wrapperspb.BytesValue{}
			if err := decode(got); err != nil {
				return nil, err
			}
			return wrapperspb.UInt64(uint64(len(got.Value))), nil
		}}}}
}

func servesBlobs(t *testing.T, a *limit.ResponseBudget) (address string,
	closed func(string) float64) {
	t.Helper()
	s := NewServer(ServerConfig{})
	s.RegisterService(blobs(a), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return l.Addr().String(), func(string) float64 { return s.metrics.inboundClosed.Value() }
}

// plainClient is a client of gRPC as any program makes one.
func plainClient(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Large answers count until they are sent, and more are refused than there is room for. What is on
// a connection that goes is given back.
func TestAnswersAreBounded(t *testing.T) {
	a := limit.ResponseBudgetOf(quota.NewBytes(5<<20, 0))
	address, _ := servesBlobs(t, a)
	get := func(conn *grpc.ClientConn, size uint64) error {
		return conn.Invoke(t.Context(), "/test.Blobs/Get", wrapperspb.UInt64(size),
			&wrapperspb.BytesValue{})
	}
	conn := plainClient(t, address)
	for range 20 {
		if err := get(conn, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all is sent", func() bool { return a.Held() == 0 })
	for range 3 {
		if err := get(conn, 3<<20); err != nil {
			t.Errorf("more than the share, and nothing else: %v", err)
		}
		await(t, "it is sent", func() bool { return a.Held() == 0 })
	}
	// A client that reads nothing.
	raw, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	call := unread(t, raw, "/test.Blobs/Get", wrapperspb.UInt64(1<<20))
	for range 3 {
		call()
	}
	await(t, "two answers wait", func() bool { return a.Held() > 2<<20 })
	if err := get(conn, 1<<20); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beside a client that reads nothing: %v", err)
	}
	if err := get(conn, 32<<10); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	_ = raw.Close()
	await(t, "its answers are dropped", func() bool { runtime.GC(); return a.Held() == 0 })
}

// A client that sends more calls with large messages at a time than the server has memory for is
// served nevertheless, and its connection is not closed.
func TestManyLargeMessagesAtATime(t *testing.T) {
	address, closed := servesBlobs(t, nil)
	conn := plainClient(t, address)
	message := wrapperspb.Bytes(bytes.Repeat([]byte("x"), 1536<<10))
	var calls sync.WaitGroup
	for range 250 {
		calls.Go(func() {
			got := &wrapperspb.UInt64Value{}
			if err := conn.Invoke(t.Context(), "/test.Blobs/Put", message, got); err != nil ||
				got.Value != 1536<<10 {
				t.Errorf("%v: %v", got, err)
			}
		})
	}
	calls.Wait()
	if n := closed("overfull"); n > 0 {
		t.Errorf("%v connections were closed", n)
	}
}

// unread begins calls on a connection, of which it reads nothing but what opens it.
func unread(t *testing.T, raw net.Conn, method string, request proto.Message) (call func()) {
	t.Helper()
	data, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(raw, raw)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	id := uint32(1)
	return func() {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"},
			{":path", method}, {":authority", "x"}, {"content-type", "application/grpc"},
			{"te", "trailers"}} {
			_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(),
			EndHeaders: true})
		head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data)))
		if err := f.WriteData(id, true, append(head, data...)); err != nil {
			t.Error(err)
		}
		id += 2
	}
}

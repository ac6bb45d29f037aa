package rpc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// encoded is a message that is encoded already, and the codec that sends it.
type encoded []byte

type encodedCodec struct{}

func (encodedCodec) Name() string                    { return "proto" }
func (encodedCodec) Marshal(v any) ([]byte, error)   { return v.(encoded), nil }
func (encodedCodec) Unmarshal(b []byte, v any) error { *v.(*encoded) = b; return nil }

// listService serves a call and a stream of structpb.ListValue, which enter each message, and wait
// with it in hand.
func listService(enter func() error) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: "test", Methods: []grpc.MethodDesc{{MethodName: "Call",
		Handler: func(_ any, _ context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			m := new(structpb.ListValue)
			if err := decode(m); err != nil {
				return nil, err
			}
			return new(structpb.ListValue), enter()
		}}}, Streams: []grpc.StreamDesc{{StreamName: "Stream", ClientStreams: true,
		ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				if err := stream.RecvMsg(new(structpb.ListValue)); err != nil {
					return err
				}
				if err := enter(); err != nil {
					return err
				}
				if err := stream.SendMsg(new(structpb.ListValue)); err != nil {
					return err
				}
			}
		}}}}
}

// TestDecodedCallsAreCounted: messages of gRPC calls that are small where they are sent and large
// where they are decoded find memory for what they take when they are decoded, or are refused. What
// a call has taken is there again when it is over.
func TestDecodedCallsAreCounted(t *testing.T) {
	const parts, calls = 10_000, 40
	bomb := encoded(bytes.Repeat([]byte{10, 0}, parts)) // empty values
	memory := limit.NewRequestMemory(8 << 20)
	s := NewServer(ServerConfig{Memory: memory})
	entered, gate := make(chan struct{}, calls), make(chan struct{})
	s.RegisterService(listService(func() error {
		entered <- struct{}{}
		<-gate
		return nil
	}), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) })
	defer running.Wait()
	defer s.Stop()
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	results := make(chan error, calls)
	connect := func() *grpc.ClientConn {
		conn, err := grpc.NewClient(l.Addr().String(),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(encodedCodec{})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for range calls {
		conn := connect()
		running.Go(func() {
			var answer encoded
			results <- conn.Invoke(t.Context(), "/test/Call", bomb, &answer)
		})
	}
	// A host alone has half of all.
	const most = (8 << 20) / 2 / (parts * wire.PartBytes)
	for range calls - most {
		if err := <-results; status.Code(err) != codes.ResourceExhausted ||
			!strings.Contains(err.Error(), "etcdserver: too many requests") {
			t.Fatalf("a call without memory: %v", err)
		}
	}
	for range most {
		<-entered
	}
	if held := memory.Held(); held < most*parts*wire.PartBytes || held > 8<<20/2 {
		t.Errorf("%d bytes are held", held)
	}
	open()
	for range most {
		if err := <-results; err != nil {
			t.Errorf("a call with memory: %v", err)
		}
	}
	await(t, "memory is given back", func() bool { return memory.Held() == 0 })

	stream, err := connect().NewStream(t.Context(),
		&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test/Stream")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * most {
		var answer encoded
		if err := errors.Join(stream.SendMsg(bomb), stream.RecvMsg(&answer)); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		<-entered
		if held := memory.Held(); held > 2*parts*wire.PartBytes {
			t.Fatalf("after message %d of a stream %d bytes are held", i, held)
		}
	}
	if err := stream.SendMsg(encoded(bytes.Repeat([]byte{10, 0}, 50_000))); err != nil {
		t.Fatal(err)
	}
	var answer encoded
	if err := stream.RecvMsg(&answer); status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "request is too large") {
		t.Errorf("a message of a stream that never finds memory: %v", err)
	}
	await(t, "memory is given back", func() bool { return memory.Held() == 0 })
}

// TestPassedOnCallsAreCounted: a call that a server passes on counts for the party that the server
// names, or else for that server. What the server asks by itself is never refused.
func TestPassedOnCallsAreCounted(t *testing.T) {
	const parts, bound = 10_000, 8 << 20
	const most = bound / 2 / (parts * wire.PartBytes) // of a party alone
	secret := transport.Secret("0123456789abcdef")
	memory := limit.NewRequestMemory(bound)
	s := NewServer(ServerConfig{Memory: memory, Peers: &authn.PeerPolicy{Secret: secret},
		CPU: limit.NewCPULimiter(),
		PassedOn: func(ctx context.Context) (party string, ok bool) {
			named := metadata.ValueFromIncomingContext(ctx, "party")
			return strings.Join(named, ""), len(named) > 0
		}})
	entered, gate := make(chan struct{}, 100), make(chan struct{})
	s.RegisterService(listService(func() error {
		entered <- struct{}{}
		<-gate
		return nil
	}), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(l) })
	defer running.Wait()
	defer s.Stop()
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	dialer := client.NewDialer(client.DialerConfig{Secret: secret})
	defer dialer.Close()
	conn, err := dialer.Conn(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	bomb := func(parts int) *structpb.ListValue {
		return &structpb.ListValue{Values: slices.Repeat([]*structpb.Value{{}}, parts)}
	}
	results := make(chan error, 100)
	for i, step := range []struct {
		party   []string
		calls   int
		refused int
	}{
		{[]string{"party", "a"}, most + 3, 3},
		{[]string{"party", "b"}, 1, 0},
		{[]string{"party", ""}, most, most - 1}, // which takes what is left to one more
		{nil, 2 * most, 0},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(step.party...))
		for range step.calls {
			running.Go(func() {
				results <- conn.Invoke(ctx, "/test/Call", bomb(parts), new(structpb.ListValue))
			})
		}
		refused := 0
		for range step.calls {
			select {
			case <-entered:
			case err := <-results:
				if refused++; status.Code(err) != codes.ResourceExhausted {
					t.Fatalf("step %d: %v", i, err)
				}
			}
		}
		if refused != step.refused {
			t.Errorf("step %d: %d calls were refused, want %d", i, refused, step.refused)
		}
	}
	open()
	await(t, "memory is given back", func() bool { return memory.Held() == 0 })
}

// TestUnpackedRequestsAreCounted: a request that takes more memory when it is worked on than its
// encoding counts as that.
func TestUnpackedRequestsAreCounted(t *testing.T) {
	n := network{mem: memnet.New()}
	const unpacked, limit = 1 << 20, 8 << 20
	_, server, _ := serveBatch(t, n, "s:1", BatchServerConfig{MaxBytes: limit,
		Unpacked: func(q *kvpb.Request) int { return unpacked },
		Handle:   func(uint64, []*kvpb.Request, func(*kvpb.Response)) {}})
	stream, end := openConn(t, n.dialer(t, "c"), "s:1")
	defer end()
	m := &kvpb.BatchRequest{Hello: hello(1, 1)}
	if err := stream.Send(m); err != nil {
		t.Fatal(err)
	}
	const more = 5
	for id := range uint64(limit/2/unpacked - 1 + more) {
		q := get("k")
		q.Id = id + 1
		if err := stream.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{q}}); err != nil {
			t.Fatal(err)
		}
	}
	for id, r := range receiveAll(t, stream, more) {
		if r.Error.GetCode() != kvpb.ErrorCode_OVERLOADED {
			t.Errorf("%d: %v", id, r)
		}
	}
	if held := server.memory.Held(); held > limit/2 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestRequestsThatNeverFit: a request that takes more memory than a host can have is refused with
// the number, for good, and so is a read whose response does. While a request comes to be, its
// message counts beside it.
func TestRequestsThatNeverFit(t *testing.T) {
	n := network{mem: memnet.New()}
	const limit = 8 << 20 // of which a host alone has half
	unpacked := 0
	serveBatch(t, n, "s:1", BatchServerConfig{MaxBytes: limit,
		Unpacked: func(*kvpb.Request) int { return unpacked },
		Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			for _, q := range batch {
				r := echo(q)
				if g := r.GetGet(); g != nil {
					g.Value = make([]byte, 5<<20)
				}
				reply(r)
			}
		}})
	conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
	for _, step := range []struct {
		name     string
		request  *kvpb.Request
		unpacked int
		refused  string
	}{
		{"what a host can have twice", put("k", make([]byte, 2<<20-64<<10)), 0, ""},
		{"more when its message counts", put("k", make([]byte, 3<<20)), 0, "request takes 314"},
		{"more when it is unpacked", put("k", make([]byte, 1<<10)), 5 << 20, "request takes 524"},
		{"a response", get("k"), 0, "response takes 524"},
	} {
		unpacked = step.unpacked
		r, err := conn.Do(t.Context(), step.request)
		switch e := r.GetError(); {
		case err != nil:
			t.Fatal(err)
		case step.refused == "":
			if e != nil {
				t.Errorf("%s: %v", step.name, e)
			}
		case e.GetCode() != kvpb.ErrorCode_OVERLOADED ||
			e.GetCause() != kvpb.ErrorCause_CAUSE_TOO_LARGE || !strings.Contains(e.Message, step.refused):
			t.Errorf("%s: %v", step.name, e)
		}
	}
}

// TestUnreadResponsesAreCounted: what clients that read nothing have a server hold of responses,
// over all their streams, is bounded as requests are; another host is answered meanwhile, and
// responses of writes are never replaced.
func TestUnreadResponsesAreCounted(t *testing.T) {
	n := network{mem: memnet.New()}
	const limit, size, streams = 8 << 20, 256 << 10, 10
	_, server, _ := serveBatch(t, n, "s:1", BatchServerConfig{MaxBytes: limit,
		Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			for _, q := range batch {
				r := echo(q)
				if g := r.GetGet(); g != nil && string(q.GetGet().GetKey()) == "large" {
					g.Value = make([]byte, size)
				}
				reply(r)
			}
		}})
	var stalled []byHand
	for i := range uint64(streams) {
		stream, end := openConn(t, n.dialer(t, "greedy"), "s:1")
		defer end()
		stalled = append(stalled, stream)
		m := &kvpb.BatchRequest{Hello: hello(i+1, 1)}
		for id := range uint64(2 * limit / size) {
			q := get("large")
			q.Id = id + 1
			m.Requests = append(m.Requests, q)
		}
		q := put("k", nil)
		q.Id = 1000
		m.Requests = append(m.Requests, q)
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	// What a connection writes at the moment is beside it.
	if held := server.memory.Held(); held > limit {
		t.Errorf("%d bytes are held", held)
	}
	conn := batchConn(t, n.dialer(t, "other"), "s:1", func(c *client.BatchConfig) { c.Client = 100 })
	for range 10 {
		if r, err := conn.Do(t.Context(), get("large")); err != nil || r.Error != nil {
			t.Fatal(r.GetError(), err)
		}
	}
	refused := 0
	for _, stream := range stalled {
		for id, r := range receiveAll(t, stream, 2*limit/size+1) {
			switch {
			case id == 1000 && r.GetPut() == nil:
				t.Errorf("the response of a write is %v", r)
			case r.Error.GetCode() == kvpb.ErrorCode_OVERLOADED:
				refused++
			}
		}
	}
	if kept := streams*2*limit/size - refused; kept*size > 2*limit {
		t.Errorf("%d responses of %d bytes were kept", kept, size)
	}
	await(t, "memory is given back", func() bool {
		return server.memory.Held() <= (streams+2)*(spare+1)*leastPieceBytes
	})
}

// TestManyOpenCallsAreCounted: a connection may have many calls and streams open, and so may
// clients whose calls are passed on. Beyond freeCalls each of them takes memory, without which it
// is refused and does not wait. The others are served, and what a call has taken is there again
// when it is over.
func TestManyOpenCallsAreCounted(t *testing.T) {
	t.Run("of a client", func(t *testing.T) { testManyOpenCalls(t, ServerConfig{}, nil) })
	secret := transport.Secret("0123456789abcdef")
	t.Run("passed on", func(t *testing.T) {
		testManyOpenCalls(t, ServerConfig{Peers: &authn.PeerPolicy{Secret: secret},
			PassedOn: func(context.Context) (party string, ok bool) { return "p", true }}, secret)
	})
}

func testManyOpenCalls(t *testing.T, config ServerConfig, secret transport.Secret) {
	const more = 64
	n := network{mem: memnet.New()}
	memory := limit.NewRequestMemory(2 * more * limit.OpenCallBytes) // of which a host alone has half
	gate := make(chan struct{})
	listener, err := n.mem.Listen("s:1")
	if err != nil {
		t.Fatal(err)
	}
	config.Memory = memory
	s := NewServer(config)
	s.RegisterService(listService(func() error { <-gate; return nil }), nil)
	var running sync.WaitGroup
	running.Go(func() { _ = s.Serve(listener) })
	defer running.Wait()
	defer s.Stop()
	dialer := client.NewDialer(client.DialerConfig{Dial: n.mem.Dialer("c"), Secret: secret})
	defer dialer.Close()
	conn := mustConn(t, dialer, "s:1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func() grpc.ClientStream {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true,
			ServerStreams: true}, "/test/Stream")
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	for range limit.FreeCalls + more {
		open()
	}
	await(t, "all streams are open", func() bool { return memory.Held() == more*limit.OpenCallBytes })
	refused := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.ResourceExhausted ||
			!strings.Contains(err.Error(), "etcdserver: too many requests") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("one stream more", open().RecvMsg(new(structpb.ListValue)))
	refused("one call more", conn.Invoke(ctx, "/test/Call", new(structpb.ListValue),
		new(structpb.ListValue)))
	cancel()
	await(t, "memory is given back", func() bool { return memory.Held() == 0 })
	close(gate)
	if err := conn.Invoke(t.Context(), "/test/Call", new(structpb.ListValue),
		new(structpb.ListValue)); err != nil {
		t.Errorf("a call after that: %v", err)
	}
}

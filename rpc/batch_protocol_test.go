package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

func hello(client, stream uint64) *kvpb.Hello { return &kvpb.Hello{Client: client, Stream: stream} }

func request(id uint64) *kvpb.Request {
	r := get(fmt.Sprint(id))
	r.Id = id
	return r
}

// byHand is a client's stream that a test writes by hand.
type byHand interface {
	Send(*kvpb.BatchRequest) error
	Recv() (*kvpb.BatchResponse, error)
	CloseSend() error
}

// handConn is one over a connection. It is made with the first message, which says hello.
type handConn struct {
	dialer   *client.Dialer
	addr     string
	conn     *transport.Conn
	accepted bool
}

func (h *handConn) Send(m *kvpb.BatchRequest) error {
	b, err := m.MarshalVT()
	if err != nil {
		return err
	}
	if h.conn == nil {
		h.conn, err = h.dialer.Open(background(), h.addr, append([]byte{wire.HelloClient}, b...))
		return err
	}
	return h.conn.Send(b)
}

func (h *handConn) Recv() (*kvpb.BatchResponse, error) {
	if !h.accepted {
		if err := h.conn.AwaitAccepted(); err != nil {
			return nil, err
		}
		h.accepted = true
	}
	b, err := h.conn.Receive()
	if err != nil {
		return nil, err
	}
	m := new(kvpb.BatchResponse)
	return m, wire.UnmarshalOwned(b, m)
}

func (h *handConn) CloseSend() error { return h.conn.CloseSend() }

// openConn opens a stream over a connection of package transport.
func openConn(t testing.TB, d *client.Dialer, addr string) (byHand, context.CancelFunc) {
	t.Helper()
	h := &handConn{dialer: d, addr: addr}
	end := func() {
		if h.conn != nil {
			_ = h.conn.Close()
		}
	}
	t.Cleanup(end)
	return h, end
}

// openStream opens a stream over gRPC.
func openStream(t testing.TB, conn *grpc.ClientConn) (byHand, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(background())
	t.Cleanup(cancel)
	stream, err := kvpb.NewKVClient(conn).Batch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream, cancel
}

// lastError receives until the stream ends.
func lastError(stream byHand) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
	}
}

// What breaks the protocol ends the stream with a status that says why; the server serves others as
// before.
func TestBatchServerRefuses(t *testing.T) {
	n := network{mem: memnet.New()}
	config := BatchServerConfig{Handle: func(uint64, []*kvpb.Request, func(*kvpb.Response)) {},
		Cluster: func() uint64 { return 5 }}
	serveBatch(t, n, "s:1", config)
	conn := mustConn(t, n.dialer(t, "c"), "s:1")
	for _, test := range []struct {
		name     string
		messages []*kvpb.BatchRequest
		code     codes.Code
		text     string
	}{
		{"no hello", []*kvpb.BatchRequest{{Requests: []*kvpb.Request{request(1)}}},
			codes.InvalidArgument, "must carry Hello"},
		{"empty", []*kvpb.BatchRequest{{}}, codes.InvalidArgument, "must carry Hello"},
		{"no client", []*kvpb.BatchRequest{{Hello: hello(0, 1)}}, codes.InvalidArgument, "client id"},
		{"no stream", []*kvpb.BatchRequest{{Hello: hello(1, 0)}}, codes.InvalidArgument,
			"stream number"},
		{"other cluster", []*kvpb.BatchRequest{{Hello: &kvpb.Hello{Client: 1, Stream: 1,
			Cluster: 6}}}, codes.FailedPrecondition, "belongs to cluster 0000000000000005"},
		{"hello again", []*kvpb.BatchRequest{{Hello: hello(2, 1)}, {Hello: hello(2, 1)}},
			codes.InvalidArgument, "Hello again"},
		{"same id in one message", []*kvpb.BatchRequest{
			{Hello: hello(3, 1), Requests: []*kvpb.Request{request(1), request(1)}}},
			codes.InvalidArgument, "id 1 is used twice"},
		{"same id in two messages", []*kvpb.BatchRequest{
			{Hello: hello(4, 1), Requests: []*kvpb.Request{request(1)}},
			{Requests: []*kvpb.Request{request(1)}}}, codes.InvalidArgument, "id 1 is used twice"},
	} {
		t.Run(test.name, func(t *testing.T) {
			overGRPC, _ := openStream(t, conn)
			direct, _ := openConn(t, n.dialer(t, "c"), "s:1")
			for _, stream := range []byHand{overGRPC, direct} {
				for _, m := range test.messages {
					if m = proto.Clone(m).(*kvpb.BatchRequest); m.Hello != nil &&
						m.Hello.Client != 0 && stream == direct {
						m.Hello.Client += 100
					}
					if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
						t.Fatal(err)
					}
				}
				if err := lastError(stream); status.Code(err) != test.code || !contains(err, test.text) {
					t.Fatal(err)
				}
			}
		})
	}
	t.Run("ends before hello", func(t *testing.T) {
		stream, _ := openStream(t, conn)
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := lastError(stream); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// Bytes that are not a message, or too many of them, end the stream with a status.
func TestBatchServerGarbage(t *testing.T) {
	addr, _, _ := serveBatch(t, network{}, "", BatchServerConfig{Handle: echoAll})
	conn := mustConn(t, network{}.dialer(t, ""), addr)
	for _, test := range []struct {
		garbage []byte
		code    codes.Code
	}{
		{[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, codes.Internal},
		{[]byte{2<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}, codes.Internal},
		{make([]byte, wire.MaxMessageBytes+1), codes.ResourceExhausted},
	} {
		stream, err := conn.NewStream(t.Context(), &kvpb.KV_ServiceDesc.Streams[0],
			kvpb.KV_Batch_FullMethodName,
			grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallSendMsgSize(1<<30))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(test.garbage); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(new([]byte)); status.Code(err) != test.code {
			t.Fatalf("%d bytes: %v", len(test.garbage), err)
		}
	}
	h, err := helloOfClient(hello(9, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, garbage := range [][]byte{{0xff, 0xff, 0xff, 0xff, 0xff},
		{2<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}} {
		conn, err := network{}.dialer(t, "").Open(t.Context(), addr, h)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Send(garbage), conn.AwaitAccepted()); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Receive(); status.Code(err) != codes.InvalidArgument {
			t.Fatal(err)
		}
		_ = conn.Close()
		h, _ = helloOfClient(hello(9, 2))
	}
	if _, err := batchConn(t, network{}.dialer(t, ""), addr, nil).Do(t.Context(),
		get("still there")); err != nil {
		t.Fatal(err)
	}
}

// A request without a command is answered as invalid, and its neighbours as usual. A stream that
// the client half-closes still brings all responses, and then ends well.
func TestBatchServerAnswersAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: func(client uint64, batch []*kvpb.Request,
			reply func(*kvpb.Response)) {
			time.AfterFunc(time.Second, func() { echoAll(client, batch, reply) })
		}})
		stream, _ := openConn(t, n.dialer(t, "c"), "s:1")
		batch := &kvpb.BatchRequest{Hello: hello(1, 1),
			Requests: []*kvpb.Request{request(1), {Id: 2}, request(3)}}
		if err := errors.Join(stream.Send(batch), stream.CloseSend()); err != nil {
			t.Fatal(err)
		}
		got := make(map[uint64]*kvpb.Response)
		for {
			responses, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range responses.Responses {
				got[r.Id] = r
			}
		}
		if len(got) != 3 || got[1].Error != nil || got[3].Error != nil ||
			got[2].Error.GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT {
			t.Fatal(got)
		}
	})
}

func TestBatchServerBoundsStreams(t *testing.T) {
	n := network{mem: memnet.New()}
	serveBatch(t, n, "s:1", BatchServerConfig{Handle: echoAll, MaxStreams: 2})
	dialer := n.dialer(t, "c")
	roundTrip := func(client uint64) (context.CancelFunc, byHand, error) {
		stream, cancel := openConn(t, dialer, "s:1")
		_ = stream.Send(&kvpb.BatchRequest{Hello: hello(client, 1),
			Requests: []*kvpb.Request{request(1)}})
		_, err := stream.Recv()
		return cancel, stream, err
	}
	_, first, err := roundTrip(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = roundTrip(2); err != nil {
		t.Fatal(err)
	}
	if _, _, err = roundTrip(3); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	_ = first.CloseSend()
	if err := lastError(first); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	// Its place is free once the server's handler has returned, which is a moment after the client
	// has seen the end.
	for client := uint64(4); ; client++ {
		if _, _, err = roundTrip(client); err == nil {
			break
		} else if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
}

// A host that opens more streams than its share loses others of its own, and no other host does.
func TestHostsShareStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		const limit = 32
		_, server, _ := serveBatch(t, n, "s:1", BatchServerConfig{Handle: echoAll, MaxStreams: limit})
		server.places = quota.NewPlaces(limit, grantedStreams, 0)
		open := func(dialer *client.Dialer, client uint64) byHand {
			stream, cancel := openConn(t, dialer, "s:1")
			t.Cleanup(cancel)
			_ = stream.Send(&kvpb.BatchRequest{Hello: hello(client, 1),
				Requests: []*kvpb.Request{request(1)}})
			if _, err := stream.Recv(); err != nil {
				t.Fatalf("client %d: %v", client, err)
			}
			return stream
		}
		other := open(n.dialer(t, "other"), 1)
		greedy := n.dialer(t, "greedy")
		var streams []byHand
		for i := range 5 * limit {
			streams = append(streams, open(greedy, uint64(2+i)))
			synctest.Wait()
			if held := server.places.Held(); held > limit/2+1 {
				t.Fatalf("%d streams are held", held)
			}
		}
		works := func(s byHand) error {
			_ = s.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{request(2)}})
			_, err := s.Recv()
			return err
		}
		if err := works(other); err != nil {
			t.Errorf("the other host's stream: %v", err)
		}
		working := 0
		for _, s := range streams {
			switch err := works(s); {
			case err == nil:
				working++
			case status.Code(err) != codes.Unavailable:
				t.Fatal(err)
			}
		}
		if working < limit/2-1 || working > limit/2 {
			t.Errorf("%d streams of the greedy host work", working)
		}
		open(n.dialer(t, "late"), 1000)
	})
}

// A client that does not read its responses gets errors in place of large ones; what waits for it
// stays bounded.
func TestBatchServerSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		const limit = 1 << 20
		serveBatch(t, n, "s:1", BatchServerConfig{MaxInFlightBytes: limit,
			Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
				for _, r := range batch {
					reply(&kvpb.Response{Id: r.Id, Result: &kvpb.Response_Get{
						Get: &kvpb.GetResponse{Value: make([]byte, 300<<10)}}})
				}
			}})
		stream, _ := openConn(t, n.dialer(t, "c"), "s:1")
		batch := &kvpb.BatchRequest{Hello: hello(1, 1)}
		for id := range uint64(200) {
			batch.Requests = append(batch.Requests, request(id+1))
		}
		if err := stream.Send(batch); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		whole, refused := 0, 0
		for whole+refused < 200 {
			responses, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range responses.Responses {
				switch {
				case len(r.GetGet().GetValue()) == 300<<10:
					whole++
				case r.Error.GetCode() == kvpb.ErrorCode_OVERLOADED:
					refused++
				default:
					t.Fatal(r)
				}
			}
		}
		// The flow-control window and one message were on their way; the rest was refused.
		if whole == 0 || whole > (wire.StreamWindow+2*limit+outbox.MaxFrame)/(300<<10)+2 {
			t.Fatalf("%d whole, %d refused", whole, refused)
		}
	})
}

// Replies that were not asked for, second replies, and replies after the stream's end are dropped
// and counted, never sent.
func TestBatchServerBadReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		replies := make(chan func(*kvpb.Response), 1)
		registry := prom.Registry(prometheus.NewRegistry())
		_, server, _ := serveBatch(t, n, "s:1", BatchServerConfig{Registry: registry,
			Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
				reply(echo(batch[0]))
				reply(echo(batch[0]))
				reply(&kvpb.Response{Id: 99})
				replies <- reply
			}})
		stream, cancel := openConn(t, n.dialer(t, "c"), "s:1")
		if err := stream.Send(&kvpb.BatchRequest{Hello: hello(1, 1),
			Requests: []*kvpb.Request{request(1)}}); err != nil {
			t.Fatal(err)
		}
		if r, err := stream.Recv(); err != nil || len(r.Responses) != 1 || r.Responses[0].Id != 1 {
			t.Fatal(r, err)
		}
		cancel()
		_ = lastError(stream)
		synctest.Wait()
		(<-replies)(&kvpb.Response{Id: 1})
		if n := counterValue(t, server.metrics.badReplies); n != 3 {
			t.Fatalf("%v bad replies counted", n)
		}
		// A second server with the same registry shares the metrics.
		if NewBatchServer(BatchServerConfig{Handle: echoAll,
			Registry: registry}).metrics.badReplies != server.metrics.badReplies {
			t.Fatal("not shared")
		}
	})
}

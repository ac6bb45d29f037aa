package rpc

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// shareKey is the key of a number of a share.
type shareKey struct{}

// A quick call that takes long holds up neither the others of its message nor later messages, and
// what others do meanwhile is not shared with it. What is shared ends.
func TestQuickCallThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		gate := make(chan struct{})
		var shares, open atomic.Int64
		serveCalls(t, n, "s:1", bytesHandler(func(ctx context.Context, q []byte) ([]byte, error) {
			if string(q) == "slow" {
				<-gate
			}
			return []byte{byte(ctx.Value(shareKey{}).(int64))}, nil
		}).service(), CallServerConfig{Quick: quickIsQuick,
			Share: func(ctx context.Context) (context.Context, func()) {
				open.Add(1)
				return context.WithValue(ctx, shareKey{}, shares.Add(1)), func() { open.Add(-1) }
			}}, nil)
		stream, end := openConn(t, n.dialer(t, "c"), "s:1")
		defer end()
		send := func(h *kvpb.Hello, first uint64, values ...string) {
			t.Helper()
			m := &kvpb.BatchRequest{Hello: h}
			for i, v := range values {
				m.Requests = append(m.Requests, callRequest(first+uint64(i), quickMethod, []byte(v)))
			}
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		send(hello(1, 1), 1, "a", "slow", "b", "c", "d", "e")
		send(nil, 11, "f", "g")
		all := receiveAll(t, stream, 7)
		// The reader shares among those that it did before it was replaced, its successor among others.
		for id, share := range map[uint64]byte{1: 1, 3: 2, 4: 2, 5: 2, 6: 2, 11: 3, 12: 3} {
			if a := answered(t, all[id]); a != string(share) {
				t.Errorf("%d: share %x, not %x", id, a, share)
			}
		}
		if n := open.Load(); n != 1 {
			t.Errorf("%d shares are open", n)
		}
		close(gate)
		if a := answered(t, receiveAll(t, stream, 1)[2]); a != "\x01" {
			t.Errorf("share %x", a)
		}
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d shares are open", n)
		}
	})
}

// The time of a call begins when it comes, also if it waits for others.
func TestTimeoutOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		serveCalls(t, n, "s:1", bytesHandler(func(ctx context.Context, q []byte) ([]byte, error) {
			if string(q) == "slow" {
				time.Sleep(handoffAfter / 2)
			}
			return q, ctx.Err()
		}).service(), CallServerConfig{Quick: quickIsQuick}, nil)
		stream, end := openConn(t, n.dialer(t, "c"), "s:1")
		defer end()
		slow, late := callRequest(1, quickMethod, []byte("slow")), callRequest(2, quickMethod, nil)
		early := callRequest(3, quickMethod, nil)
		late.TimeoutMicros = uint64((handoffAfter / 4).Microseconds())
		early.TimeoutMicros = 1 << 63 // more than a duration holds
		if err := stream.Send(&kvpb.BatchRequest{Hello: hello(1, 1),
			Requests: []*kvpb.Request{slow, late, early}}); err != nil {
			t.Fatal(err)
		}
		all := receiveAll(t, stream, 3)
		answered(t, all[1])
		answered(t, all[3])
		if len(all[2].GetCall().GetStatus()) == 0 {
			t.Errorf("%v", all[2])
		}
	})
}

// A client whose connection ends does not know whether its calls were made, and its callers hear of
// that at once; callers that give up hear it as of gRPC.
func TestCallsOfAClientThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		begun := make(chan struct{}, 10)
		serveCalls(t, n, "s:1", bytesHandler(func(ctx context.Context, q []byte) ([]byte, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}).service(), CallServerConfig{}, nil)
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		ctx, cancel := context.WithCancel(t.Context())
		outcome := make(chan error, 2)
		go func() {
			_, _, err := callOfBytes(ctx, conn, bytesMethod, nil, client.CallOptions{})
			outcome <- err
		}()
		<-begun
		cancel()
		if err := <-outcome; status.Code(err) != codes.Canceled {
			t.Errorf("given up: %v", err)
		}
		go func() {
			_, _, err := callOfBytes(t.Context(), conn, bytesMethod, nil, client.CallOptions{})
			outcome <- err
		}()
		<-begun
		conn.Close()
		if err := <-outcome; status.Code(err) != codes.Unavailable {
			t.Errorf("closed: %v", err)
		}
	})
}

// Whatever comes as the requests of a message, the server answers it or ends the stream, and no
// call is made that was refused.
func FuzzCall(f *testing.F) {
	list, err := proto.Marshal(&structpb.ListValue{Values: make([]*structpb.Value, 200)})
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range []*kvpb.Request{callRequest(1, bytesMethod, []byte("x")),
		callRequest(2, quickMethod, bytes.Repeat([]byte("x"), 300)), callRequest(0, "/none", nil),
		{Id: 3, TimeoutMicros: 1 << 63, Call: &kvpb.Call{Method: listMethod, Message: list}},
		{Id: 4, Call: &kvpb.Call{Method: listMethod, Message: []byte{0x0a, 0xff}, RequireLeader: true}},
		{Id: 5, Call: &kvpb.Call{}}, {}, request(6)} {
		m := &kvpb.BatchRequest{Requests: []*kvpb.Request{r, callRequest(9, bytesMethod, nil)}}
		data, err := m.MarshalVT()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	n := network{mem: memnet.New()}
	service := callsOf(func(_ context.Context, request proto.Message) (any, error) {
		if proto.Size(request) > wire.MaxCallBytes {
			panic("a large request")
		}
		return wrapperspb.Bytes(nil), nil
	})
	serveCalls(f, n, "s:1", service, CallServerConfig{Quick: quickIsQuick}, nil)
	d := n.dialer(f, "c")
	var clients atomic.Uint64
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &kvpb.BatchRequest{}
		if len(data) > 1<<20 || wire.UnmarshalOwned(bytes.Clone(data), m) != nil {
			return
		}
		m.Hello, m.Token = nil, ""
		ids := map[uint64]bool{}
		for _, r := range m.Requests {
			ids[r.Id] = true
		}
		h := &handConn{dialer: d, addr: "s:1"}
		if err := h.Send(&kvpb.BatchRequest{Hello: hello(clients.Add(1), 1)}); err != nil {
			t.Fatal(err)
		}
		defer h.conn.Close()
		if err := h.Send(m); err != nil {
			t.Fatal(err)
		}
		for len(ids) > 0 {
			got, err := h.Recv()
			if err != nil {
				if len(ids) < len(m.Requests) && status.Code(err) == codes.InvalidArgument {
					return // an id that came twice
				}
				t.Fatal(err)
			}
			for _, r := range got.Responses {
				if !ids[r.Id] {
					t.Fatalf("a response to %d", r.Id)
				}
				delete(ids, r.Id)
			}
		}
	})
}

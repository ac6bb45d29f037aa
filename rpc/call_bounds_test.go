package rpc

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// As many calls of a stream are under way as may be; others are refused, and there is room again
// when these are answered.
func TestManyCallsUnderWay(t *testing.T) {
	n := network{mem: memnet.New()}
	gate := make(chan struct{})
	_, server, called := serveCalls(t, n, "s:1",
		bytesHandler(func(ctx context.Context, q []byte) ([]byte, error) {
			<-gate
			return q, nil
		}).service(), CallServerConfig{}, nil)
	stream, _ := openConn(t, n.dialer(t, "c"), "s:1")
	const more = 10
	m := &kvpb.BatchRequest{}
	for id := range uint64(maxStreamCalls + more) {
		m.Requests = append(m.Requests, callRequest(id+1, bytesMethod, []byte("x")))
	}
	for _, m := range []*kvpb.BatchRequest{{Hello: hello(1, 1)}, m} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for id, r := range receiveAll(t, stream, more) {
		if r.Error.GetCode() != kvpb.ErrorCode_OVERLOADED || id <= maxStreamCalls {
			t.Errorf("%d: %v", id, r)
		}
	}
	if held := server.memory.Held(); held < maxStreamCalls*callBytes {
		t.Errorf("%d bytes are taken for %d calls", held, maxStreamCalls)
	}
	close(gate)
	for id, r := range receiveAll(t, stream, maxStreamCalls) {
		if a := answered(t, r); a != "x" {
			t.Errorf("%d: %v", id, r)
		}
	}
	if err := stream.Send(&kvpb.BatchRequest{
		Requests: []*kvpb.Request{callRequest(1, bytesMethod, []byte("y"))}}); err != nil {
		t.Fatal(err)
	}
	if a := answered(t, receiveAll(t, stream, 1)[1]); a != "y" {
		t.Error(a)
	}
	await(t, "goroutines end", func() bool { return called.idle.Load() <= idleCallers })
	if got := counterValue(t, server.metrics.calls); got != maxStreamCalls+1 {
		t.Errorf("%v calls are counted", got)
	}
}

// boundedCalls serves calls whose answers are so many times as large as the requests, and counted.
func boundedCalls(t *testing.T, n network, a *limit.ResponseBudget, times int) (
	address string, server *BatchServer,
) {
	address, server, _ = serveCalls(t, n, "s:1",
		callsOf(func(ctx context.Context, request proto.Message) (any, error) {
			q := request.(*wrapperspb.BytesValue)
			m := wrapperspb.Bytes(make([]byte, len(q.Value)*times))
			return a.Bound(ctx, m, proto.Size(m))
		}), CallServerConfig{Quick: quickIsQuick}, nil)
	return address, server
}

// Large answers count until they are sent, and more are refused than there is room for, by the same
// bound as those of gRPC. A client that reads nothing does not keep others from small answers, and
// what is on its connection is given back with that.
func TestAnswersOfCallsAreBounded(t *testing.T) {
	a, n := limit.ResponseBudgetOf(quota.NewBytes(5<<20, 0)), network{mem: memnet.New()}
	address, _ := boundedCalls(t, n, a, 1024)
	d := n.dialer(t, "c")
	direct, by := batchConn(t, d, address, nil), mustConn(t, d, address)
	mebibyte := make([]byte, 1024)
	for range 20 {
		if got, _, err := callOfBytes(t.Context(), direct, quickMethod, mebibyte,
			client.CallOptions{}); err != nil || len(got) != 1<<20 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	await(t, "all is sent", func() bool { return a.Held() == 0 })
	for range 3 {
		if _, _, err := callOfBytes(t.Context(), direct, bytesMethod, make([]byte, 3<<10),
			client.CallOptions{}); err != nil {
			t.Errorf("more than the share, and nothing else: %v", err)
		}
		await(t, "it is sent", func() bool { return a.Held() == 0 })
	}
	// Clients that read nothing.
	var silent []*handConn
	for i := range 4 {
		h := &handConn{dialer: d, addr: address}
		silent = append(silent, h)
		if err := h.Send(&kvpb.BatchRequest{Hello: hello(uint64(i)+10, 1), Requests: []*kvpb.Request{
			callRequest(1, bytesMethod, mebibyte)}}); err != nil {
			t.Fatal(err)
		}
		defer h.conn.Close()
	}
	await(t, "two answers wait", func() bool { return a.Held() > 2<<20 })
	_, _, err := callOfBytes(t.Context(), direct, bytesMethod, mebibyte, client.CallOptions{})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beside clients that read nothing: %v", err)
	}
	err = by.Invoke(t.Context(), bytesMethod, wrapperspb.Bytes(mebibyte), &wrapperspb.BytesValue{})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("by gRPC beside clients that read nothing: %v", err)
	}
	if got, _, err := callOfBytes(t.Context(), direct, bytesMethod, mebibyte[:32],
		client.CallOptions{}); err != nil || len(got) != 32<<10 {
		t.Errorf("a small answer: %d bytes, %v", len(got), err)
	}
	for _, h := range silent {
		_ = h.conn.Close()
	}
	await(t, "its answers are dropped", func() bool { runtime.GC(); return a.Held() == 0 })
}

// An answer that the connection has taken over, and not written, counts.
func TestAnswerThatIsNotRead(t *testing.T) {
	a := limit.NewResponseBudget(512 << 20)
	address, server := boundedCalls(t, network{}, a, 1024)
	h := &handConn{dialer: network{}.dialer(t, ""), addr: address}
	const size = 60 << 20
	if err := h.Send(&kvpb.BatchRequest{Hello: hello(1, 1)}); err != nil {
		t.Fatal(err)
	}
	defer h.conn.Close()
	if err := h.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{
		callRequest(1, bytesMethod, make([]byte, size/1024))}}); err != nil {
		t.Fatal(err)
	}
	await(t, "the connection has taken it over", func() bool {
		server.open.mu.Lock()
		defer server.open.mu.Unlock()
		for ss := range server.open.all {
			ss.out.Lock()
			defer ss.out.Unlock()
			return ss.out.WrittenLocked(0) || ss.out.UnsentLocked() > 0
		}
		return false
	})
	if held := a.Held(); held < size {
		t.Errorf("%d bytes count", held)
	}
	receiveAll(t, h, 1)
	await(t, "it is sent", func() bool { return a.Held() == 0 })
}

// An answer is as large as one by gRPC may be, as far as a message holds it.
func TestLargestAnswer(t *testing.T) {
	address, _ := boundedCalls(t, network{}, limit.NewResponseBudget(512<<20), 2048)
	direct := batchConn(t, network{}.dialer(t, ""), address, nil)
	got, _, err := callOfBytes(t.Context(), direct, bytesMethod, make([]byte, 39<<10),
		client.CallOptions{})
	if err != nil || len(got) != 78<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, _, err = callOfBytes(t.Context(), direct, bytesMethod, make([]byte, 41<<10),
		client.CallOptions{})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("more than a message holds: %v", err)
	}
	if _, _, err := callOfBytes(t.Context(), direct, bytesMethod, nil,
		client.CallOptions{}); err != nil {
		t.Error(err)
	}
}

// Calls whose client has gone end, and are waited for; also quick ones that other readers have left
// behind.
func TestCallsEndWithTheirStream(t *testing.T) {
	n := network{mem: memnet.New()}
	begun, ended := make(chan struct{}, 100), make(chan error, 100)
	_, server, _ := serveCalls(t, n, "s:1",
		bytesHandler(func(ctx context.Context, q []byte) ([]byte, error) {
			begun <- struct{}{}
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}).service(), CallServerConfig{Quick: quickIsQuick}, nil)
	for i, method := range []string{bytesMethod, quickMethod} {
		stream, end := openConn(t, n.dialer(t, "c"), "s:1")
		m := &kvpb.BatchRequest{Hello: hello(uint64(i)+1, 1)}
		for id := range uint64(5) {
			m.Requests = append(m.Requests, callRequest(id+1, method, nil))
		}
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		for range m.Requests {
			<-begun
		}
		end()
		for range m.Requests {
			if err := <-ended; err != context.Canceled {
				t.Errorf("%s: %v", method, err)
			}
		}
		await(t, "the stream has ended", func() bool {
			server.open.mu.Lock()
			defer server.open.mu.Unlock()
			return len(server.open.all) == 0 && server.memory.Held() == 0
		})
	}
}

// A client that has nothing more to ask gets the answers to its calls, and Drain waits for them.
func TestCallsAreAnsweredAtTheEnd(t *testing.T) {
	n := network{mem: memnet.New()}
	begun, gate := make(chan struct{}, 1), make(chan struct{})
	_, server, _ := serveCalls(t, n, "s:1",
		bytesHandler(func(_ context.Context, q []byte) ([]byte, error) {
			begun <- struct{}{}
			<-gate
			return q, nil
		}).service(), CallServerConfig{}, nil)
	stream, _ := openConn(t, n.dialer(t, "c"), "s:1")
	if err := stream.Send(&kvpb.BatchRequest{Hello: hello(1, 1), Requests: []*kvpb.Request{
		callRequest(1, bytesMethod, []byte("x"))}}); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if server.Drain(ctx); ctx.Err() == nil {
		t.Error("the call was not waited for")
	}
	drained := make(chan struct{})
	go func() { server.Drain(t.Context()); close(drained) }()
	close(gate)
	if a := answered(t, receiveAll(t, stream, 1)[1]); a != "x" {
		t.Error(a)
	}
	<-drained
}

// A server that is about to end makes no more calls: what arrives then certainly is not made here,
// and what was under way is waited for.
func TestCallsAtADrainingServer(t *testing.T) {
	n := network{mem: memnet.New()}
	var made atomic.Int32
	begun, gate := make(chan struct{}, 1), make(chan struct{})
	_, server, calls := serveCalls(t, n, "s:1",
		bytesHandler(func(_ context.Context, q []byte) ([]byte, error) {
			if made.Add(1) == 1 {
				begun <- struct{}{}
				<-gate
			}
			return q, nil
		}).service(), CallServerConfig{}, nil)
	conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
	first := make(chan error, 1)
	go func() {
		_, _, err := callOfBytes(t.Context(), conn, bytesMethod, []byte("x"), client.CallOptions{})
		first <- err
	}()
	<-begun
	calls.Drain()
	drained := make(chan struct{})
	go func() { server.Drain(t.Context()); close(drained) }()
	if _, _, err := callOfBytes(t.Context(), conn, bytesMethod, nil,
		client.CallOptions{}); !errors.Is(err, client.ErrNotCalled) {
		t.Errorf("a call at a server that is about to end: %v", err)
	}
	select {
	case <-drained:
		t.Error("the call under way was not waited for")
	default:
	}
	close(gate)
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-drained
	if n := made.Load(); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

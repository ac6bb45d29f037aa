package limit

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// transportOfCall makes a context one of a call that came over a connection.
type transportOfCall struct{ grpc.ServerTransportStream }

func (transportOfCall) Method() string               { return "/test/Call" }
func (transportOfCall) SetHeader(metadata.MD) error  { return nil }
func (transportOfCall) SendHeader(metadata.MD) error { return nil }
func (transportOfCall) SetTrailer(metadata.MD) error { return nil }

// TestAnswersWithoutRoom: a stream that waits in vain ends so that clients begin it again, what
// must not be refused counts beyond the bound, and is given back.
func TestAnswersWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &ResponseBudget{bytes: quota.NewBytes(2<<20, 0)}
		ctx := grpc.NewContextWithServerTransportStream(t.Context(), transportOfCall{})
		if err := a.Room(ctx); err != nil {
			t.Errorf("there is room: %v", err)
		}
		m := wrapperspb.Bytes(make([]byte, 1<<20))
		counted, ok := a.Count(ctx, m, 1<<20).(*bounded)
		if !ok || a.Held() != 1<<20 {
			t.Fatalf("%d bytes are held", a.Held())
		}
		again := a.Count(ctx, m, 1<<20).(*bounded)
		if a.Held() != 2<<20 {
			t.Errorf("%d bytes are held", a.Held())
		}
		if err := a.Room(ctx); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("there is no room: %v", err)
		}
		if _, err := a.Bound(ctx, m, 1<<20); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a call without room: %v", err)
		}
		began := time.Now()
		if _, err := a.Wait(ctx, m, 1<<20); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream without room: %v", err)
		}
		if waited := time.Since(began); waited < answersWait {
			t.Errorf("it has waited %s", waited)
		}
		if small, ok := a.Count(ctx, m, LargeAnswerBytes-1).(*bounded); ok {
			t.Errorf("a small answer is counted: %v", small)
		}
		counted.claim.Give()
		again.claim.Give()
		if a.Held() != 0 || a.Room(ctx) != nil {
			t.Errorf("%d bytes are held", a.Held())
		}
	})
}

// Of answers that are larger than a principal's share of all, one is on its way at a time. It
// leaves the share of others alone.
func TestLargestAnswerAlone(t *testing.T) {
	a := &ResponseBudget{bytes: quota.NewBytes(2<<20, 0)}
	ctx := Leaves(peer.NewContext(t.Context(), &peer.Peer{
		Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}}))
	other := Leaves(peer.NewContext(t.Context(), &peer.Peer{
		Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 1}}))
	m := wrapperspb.Bytes(make([]byte, 3<<20))
	for range 2 {
		first, err := a.Bound(ctx, m, proto.Size(m))
		if err != nil {
			t.Fatal(err)
		}
		first.(*bounded).Becomes(4 << 20)
		if _, err := a.Bound(other, m, proto.Size(m)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second one: %v", err)
		}
		small, err := a.Bound(other, m, 512<<10)
		if err != nil {
			t.Fatalf("an answer within the share of another party: %v", err)
		}
		small.(*bounded).Sent()
		first.(*bounded).Sent()
		if n := a.Held(); n != 0 {
			t.Errorf("%d bytes are held after all", n)
		}
	}
}

// An answer that leaves the process in another way than by gRPC is refused without room, and counts
// until it is said to be sent.
func TestAnswersThatLeaveOtherwise(t *testing.T) {
	a := &ResponseBudget{bytes: quota.NewBytes(1<<20, 0)}
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}})
	m := wrapperspb.Bytes(make([]byte, 300<<10))
	if got, err := a.Bound(ctx, m, proto.Size(m)); err != nil || got != proto.Message(m) {
		t.Errorf("within the process: %v", err)
	}
	ctx = Leaves(ctx)
	got, err := a.Bound(ctx, m, proto.Size(m))
	if err != nil || a.Held() != int64(proto.Size(m)) {
		t.Fatalf("%d bytes are held, %v", a.Held(), err)
	}
	answer := got.(interface {
		proto.Message
		Becomes(int)
		Sent()
	})
	if !proto.Equal(answer, m) {
		t.Error("another message")
	}
	answer.Becomes(500 << 10)
	if n := a.Held(); n != 500<<10 {
		t.Errorf("%d bytes are held", n)
	}
	if _, err := a.Bound(ctx, m, proto.Size(m)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("without room: %v", err)
	}
	answer.Becomes(100 << 10)
	if n := a.Held(); n != 100<<10 {
		t.Errorf("%d bytes are held", n)
	}
	answer.Sent()
	answer.Sent()
	runtime.GC()
	if n := a.Held(); n != 0 {
		t.Errorf("%d bytes are held after all", n)
	}
}

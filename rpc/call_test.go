package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// failing fails as the request says.
func failing(ctx context.Context, request []byte) ([]byte, error) {
	switch kind := string(request); kind {
	case "status":
		s, err := status.New(codes.DataLoss, "lost").WithDetails(wrapperspb.String("why"))
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	case "wrapped":
		return nil, fmt.Errorf("around: %w", status.Error(codes.NotFound, "inner"))
	case "error":
		return nil, errors.New("something")
	case "cancelled":
		return nil, context.Canceled
	case "late":
		return nil, fmt.Errorf("too late: %w", context.DeadlineExceeded)
	case "deadline":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return echoBytes(ctx, request)
}

// A call has the outcome that the same call has by gRPC, over every connection.
func TestCallOutcomes(t *testing.T) {
	for _, n := range networks(t) {
		addr, _, _ := serveCalls(t, n, "s:1", bytesHandler(failing).service(),
			CallServerConfig{Quick: quickIsQuick, Better: func() string { return "better:1" }}, nil)
		d := n.dialer(t, "c")
		direct, by := batchConn(t, d, addr, nil), mustConn(t, d, addr)
		for _, kind := range []string{"", "value", "status", "wrapped", "error", "cancelled", "late",
			"deadline", strings.Repeat("x", 60<<10)} {
			for _, method := range []string{bytesMethod, quickMethod} {
				limit := 10 * time.Second
				if kind == "deadline" {
					limit = 30 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				got, better, err := callOfBytes(ctx, direct, method, []byte(kind), client.CallOptions{})
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), limit)
				want := &wrapperspb.BytesValue{}
				wantErr := by.Invoke(ctx, method, wrapperspb.Bytes([]byte(kind)), want)
				cancel()
				if string(got) != string(want.Value) || (err == nil && better != "better:1") {
					t.Errorf("%.20q: %.20q, %q", kind, got, better)
				}
				s, w := status.Convert(err), status.Convert(wantErr)
				if kind == "deadline" {
					s, w = status.New(s.Code(), ""), status.New(w.Code(), "")
				}
				if !proto.Equal(s.Proto(), w.Proto()) || errors.Is(err, client.ErrNotCalled) {
					t.Errorf("%.20q: %v by a call, %v by gRPC", kind, err, wantErr)
				}
			}
		}
	}
}

// seen is what a handler sees of a caller.
type seen struct {
	Metadata           metadata.MD
	Host, Local, Party string
	Certificate        string
	Secure, Deadline   bool
}

func see(ctx context.Context) (s seen) {
	s.Metadata, _ = metadata.FromIncomingContext(ctx)
	from, _ := peer.FromContext(ctx)
	host := func(a net.Addr) string {
		if a == nil {
			return "none"
		}
		h, _, _ := net.SplitHostPort(a.String())
		return h
	}
	s.Host, s.Local, s.Party = host(from.Addr), host(from.LocalAddr), authn.PrincipalOfCall(ctx)
	if state := authn.TLSOfCall(ctx); state != nil {
		s.Certificate = fmt.Sprint(state.Version == tls.VersionTLS13, authn.CertificateName(state))
		s.Secure = credentials.CheckSecurityLevel(from.AuthInfo, credentials.PrivacyAndIntegrity) == nil
	}
	_, s.Deadline = ctx.Deadline()
	return s
}

// A handler sees of a caller what it sees of one of gRPC, and of the metadata what a call has
// fields for.
func TestCallersAreKnown(t *testing.T) {
	for i, n := range networks(t) {
		var mu sync.Mutex
		var last seen
		looks := func(ctx context.Context, _ []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			last = see(ctx)
			return nil, nil
		}
		addr, _, _ := serveCalls(t, n, "s:1", bytesHandler(looks).service(), CallServerConfig{}, nil)
		taken := func() seen { mu.Lock(); defer mu.Unlock(); return last }
		d := n.dialer(t, "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := mustConn(t, d, addr).Invoke(ctx, bytesMethod, &wrapperspb.BytesValue{},
			&wrapperspb.BytesValue{}); err != nil {
			t.Fatal(err)
		}
		want := taken()
		direct := batchConn(t, d, addr, nil)
		for _, o := range []client.CallOptions{{}, {Token: "t"}, {RequireLeader: true},
			{Token: "u", RequireLeader: true}} {
			if _, _, err := callOfBytes(ctx, direct, bytesMethod, nil, o); err != nil {
				t.Fatal(err)
			}
			want.Metadata = metadata.MD{}
			if o.Token != "" {
				want.Metadata.Set("token", o.Token)
			}
			if o.RequireLeader {
				want.Metadata.Set("hasleader", "true")
			}
			if got := taken(); !reflect.DeepEqual(got, want) {
				t.Errorf("network %d: %+v by a call, %+v by gRPC", i, got, want)
			}
		}
		if n.tls != nil && (want.Certificate == "" || !want.Secure) {
			t.Errorf("network %d: %+v", i, want)
		}
	}
}

// Calls come on the stream of gRPC as well, whose own metadata is not that of the calls on it.
func TestCallsOnAStreamOfGRPC(t *testing.T) {
	n := network{mem: memnet.New()}
	got := make(chan seen, 1)
	looks := func(ctx context.Context, q []byte) ([]byte, error) {
		got <- see(ctx)
		return q, nil
	}
	addr, _, _ := serveCalls(t, n, "s:1", bytesHandler(looks).service(), CallServerConfig{}, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "token", "stolen", "hasleader", "true",
		"grpcgateway-accept", "x")
	stream, err := kvpb.NewKVClient(mustConn(t, n.dialer(t, "c"), addr)).Batch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := callRequest(1, bytesMethod, []byte("v"))
	r.Call.Token = "own"
	if err := stream.Send(&kvpb.BatchRequest{Hello: hello(1, 1),
		Requests: []*kvpb.Request{r}}); err != nil {
		t.Fatal(err)
	}
	if a := answered(t, receiveAll(t, stream, 1)[1]); a != "v" {
		t.Errorf("%q", a)
	}
	if s := <-got; !reflect.DeepEqual(s.Metadata, metadata.MD{"token": {"own"}}) || s.Host != "c" {
		t.Errorf("%+v", s)
	}
}

// What cannot be called here is refused, and certainly is not called: it may be called by gRPC.
func TestCallsThatAreNotMade(t *testing.T) {
	n := network{mem: memnet.New()}
	var made atomic.Int32
	handler := bytesHandler(func(context.Context, []byte) ([]byte, error) {
		made.Add(1)
		return nil, nil
	})
	serveCalls(t, n, "s:1", handler.service(), CallServerConfig{}, nil)
	serveBatch(t, n, "none:1", BatchServerConfig{Handle: echoAll})
	d := n.dialer(t, "c")
	direct, none := batchConn(t, d, "s:1", nil), batchConn(t, d, "none:1", nil)
	for name, call := range map[string]func() error{
		"unknown method": func() error {
			_, _, err := callOfBytes(t.Context(), direct, "/test.Calls/None", nil, client.CallOptions{})
			return err
		},
		"no method": func() error {
			_, _, err := callOfBytes(t.Context(), direct, "", nil, client.CallOptions{})
			return err
		},
		"server without calls": func() error {
			_, _, err := callOfBytes(t.Context(), none, bytesMethod, nil, client.CallOptions{})
			return err
		},
		"no server": func() error {
			_, _, err := callOfBytes(t.Context(), batchConn(t, d, "nowhere:1", nil), bytesMethod, nil,
				client.CallOptions{})
			return err
		},
		"long token": func() error {
			_, _, err := callOfBytes(t.Context(), direct, bytesMethod, nil,
				client.CallOptions{Token: strings.Repeat("t", wire.MaxTokenBytes+1)})
			return err
		},
		"large request": func() error {
			_, _, err := callOfBytes(t.Context(), direct, bytesMethod, make([]byte, wire.MaxCallBytes),
				client.CallOptions{})
			if !errors.Is(err, client.ErrCallTooLarge) {
				t.Errorf("large: %v", err)
			}
			return err
		},
		"closed connection": func() error {
			closed := batchConn(t, d, "s:1", nil)
			closed.Close()
			_, _, err := callOfBytes(t.Context(), closed, bytesMethod, nil, client.CallOptions{})
			return err
		},
	} {
		if err := call(); !errors.Is(err, client.ErrNotCalled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// By hand: what BatchConn.Call does not send.
	stream, _ := openConn(t, d, "s:1")
	large := callRequest(1, bytesMethod, make([]byte, wire.MaxCallBytes))
	malformed := callRequest(2, bytesMethod, nil)
	malformed.Call.Message = []byte(strings.Repeat("\x0a\xff\xff\xff\xff\x7f", 30))
	for _, m := range []*kvpb.BatchRequest{{Hello: hello(1, 1)},
		{Requests: []*kvpb.Request{large, malformed}}} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for id, r := range receiveAll(t, stream, 2) {
		if r.Error.GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT || r.Call != nil {
			t.Errorf("%d: %v", id, r)
		}
	}
	if n := made.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	// A short one is found to be malformed by the handler, as by gRPC.
	short := callRequest(3, bytesMethod, nil)
	short.Call.Message = []byte("\x0a\x05")
	if err := stream.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{short}}); err != nil {
		t.Fatal(err)
	}
	if r := receiveAll(t, stream, 1)[3]; r.Error != nil || len(r.Call.GetStatus()) == 0 {
		t.Errorf("%v", r)
	}
	if n := made.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// Commands and calls of one message are all answered, and so is what is refused of it.
func TestCallsBesideCommands(t *testing.T) {
	n := network{mem: memnet.New()}
	for _, take := range []bool{false, true} {
		name := fmt.Sprint("s", take, ":1")
		serveCalls(t, n, name, bytesHandler(echoBytes).service(),
			CallServerConfig{Quick: quickIsQuick}, func(c *BatchServerConfig) {
				if take {
					c.Handle = nil
					c.Take = func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) Work {
						return takenLater(func() { echoAll(client, batch, reply) })
					}
				}
			})
		stream, _ := openConn(t, n.dialer(t, "c"), name)
		both := request(7)
		both.Call = callRequest(7, bytesMethod, []byte("7")).Call
		message := &kvpb.BatchRequest{Hello: hello(1, 1), Requests: []*kvpb.Request{request(1),
			callRequest(2, bytesMethod, []byte("2")), callRequest(3, quickMethod, []byte("3")),
			{Id: 4}, callRequest(5, "/none", nil), request(6), both}}
		if err := stream.Send(message); err != nil {
			t.Fatal(err)
		}
		all := receiveAll(t, stream, 7)
		for _, id := range []uint64{1, 6} {
			if string(all[id].GetGet().GetValue()) != fmt.Sprint(id) {
				t.Errorf("%v", all[id])
			}
		}
		for _, id := range []uint64{2, 3, 7} {
			if a := answered(t, all[id]); a != fmt.Sprint(id) {
				t.Errorf("%d: %s", id, a)
			}
		}
		for _, id := range []uint64{4, 5} {
			if all[id].Error.GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT {
				t.Errorf("%v", all[id])
			}
		}
	}
}

// takenLater is work of one piece.
type takenLater func()

func (w takenLater) Run() { w() }

func (takenLater) Done() {}

// The guard of requests is not asked about calls, whose handlers judge for themselves.
func TestCallsPassTheGuard(t *testing.T) {
	n := network{mem: memnet.New()}
	var guard fakeGuard
	serveCalls(t, n, "s:1", bytesHandler(echoBytes).service(), CallServerConfig{},
		func(c *BatchServerConfig) {
			c.Guard, c.RequiresAuth, c.Permissions = &guard, fakeRequiresAuth, fakePermissions
		})
	conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
	got, _, err := callOfBytes(t.Context(), conn, bytesMethod, []byte("x"), client.CallOptions{})
	if err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if r, err := conn.Do(t.Context(), get("k")); err != nil || r.Error == nil {
		t.Errorf("a request of nobody: %v, %v", r, err)
	}
}

// A list of a request that is within its limit of bytes is counted as what it takes decoded.
func TestPartsOfCallsAreCounted(t *testing.T) {
	n := network{mem: memnet.New()}
	gate, begun := make(chan struct{}), make(chan int, 2)
	service := callsOf(func(_ context.Context, request proto.Message) (any, error) {
		if m, ok := request.(*structpb.ListValue); ok {
			begun <- len(m.Values)
			<-gate
		}
		return wrapperspb.Bytes(nil), nil
	})
	list := &structpb.ListValue{}
	for range 20_000 {
		list.Values = append(list.Values, &structpb.Value{})
	}
	encoded, err := proto.Marshal(list)
	if err != nil || len(encoded) > wire.MaxCallBytes {
		t.Fatal(len(encoded), err)
	}
	want := int64(len(list.Values) * wire.PartBytes)
	_, server, _ := serveCalls(t, n, "s:1", service, CallServerConfig{}, nil)
	// It has room for no more than its half of what is granted and left.
	serveCalls(t, n, "small:1", service, CallServerConfig{},
		func(c *BatchServerConfig) { c.MaxBytes = want })
	d := n.dialer(t, "c")
	done := make(chan error, 1)
	go func() {
		_, err := batchConn(t, d, "s:1", nil).Call(t.Context(), listMethod, list,
			&wrapperspb.BytesValue{}, client.CallOptions{})
		done <- err
	}()
	if n := <-begun; n != len(list.Values) {
		t.Errorf("%d values", n)
	}
	if held := server.memory.Held(); held < want {
		t.Errorf("%d bytes are taken, not %d", held, want)
	}
	close(gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
	await(t, "memory is given back",
		func() bool { return server.memory.Held() <= spare*mostPieceBytes })
	small := batchConn(t, d, "small:1", nil)
	_, err = small.Call(t.Context(), listMethod, list, &wrapperspb.BytesValue{}, client.CallOptions{})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("with more than there ever is: %v", err)
	}
	_, _, err = callOfBytes(t.Context(), small, bytesMethod, []byte("x"), client.CallOptions{})
	if err != nil {
		t.Errorf("a small call after it: %v", err)
	}
}

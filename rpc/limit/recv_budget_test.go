package limit

import (
	"bytes"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestInboundForgets: a connection whose address was another one's leaves no bytes of that behind.
func TestInboundForgets(t *testing.T) {
	in := NewRecvBudget(RecvConfig{Limit: 100, Memory: NewRequestMemory(1 << 20),
		Closed: func() { t.Error("a connection was closed") }})
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	if err := http2.NewFramer(&sent, nil).WriteData(1, false, make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		one, other := net.Pipe()
		c := in.Watch(one, one)
		go func() { _, _ = other.Write(sent.Bytes()) }()
		if n, err := c.Read(make([]byte, 128)); n != sent.Len() || err != nil {
			t.Fatal(n, err)
		}
		defer other.Close()
		defer one.Close()
	}
	if in.total != 50 || len(in.conns) != 1 {
		t.Errorf("%d bytes of %d connections", in.total, len(in.conns))
	}
}

// However the bytes come, what is in DATA frames is told from everything else.
func TestFramesTellContent(t *testing.T) {
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&wire, nil)
	want := int64(0)
	for i := range uint32(200) {
		size := rand.IntN(3000)
		var err error
		switch rand.IntN(5) {
		case 0:
			err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1,
				BlockFragment: make([]byte, size), EndHeaders: true})
		case 1:
			err = framer.WritePing(false, [8]byte{})
		case 2:
			err = framer.WriteWindowUpdate(0, 77)
		default:
			want += int64(size)
			err = framer.WriteData(2*i+1, false, make([]byte, size))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f := frames{skip: len(http2.ClientPreface)}
	got := int64(0)
	for wire.Len() > 0 {
		got += f.content(wire.Next(1 + rand.IntN(700)))
	}
	if got != want {
		t.Errorf("%d bytes of content, want %d", got, want)
	}
}

// countingCredentials have a server's connections counted.
type countingCredentials struct {
	credentials.TransportCredentials
	in *RecvBudget
}

func (c countingCredentials) Clone() credentials.TransportCredentials { return c }

func (c countingCredentials) ServerHandshake(
	raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	_, info, err := c.TransportCredentials.ServerHandshake(raw)
	return c.in.Watch(raw, raw), info, err
}

// What comes on a stream that stays open is counted until it is received, and no longer.
func TestInboundCountsMessagesOfStreams(t *testing.T) {
	in := NewRecvBudget(RecvConfig{Limit: 16 << 10, Memory: NewRequestMemory(0), Closed: func() {}})
	s := grpc.NewServer(grpc.Creds(countingCredentials{insecure.NewCredentials(), in}),
		grpc.ForceServerCodecV2(wire.Codec{}), grpc.ChainStreamInterceptor(in.CountStream))
	receive := func(_ any, stream grpc.ServerStream) error {
		c := recvConnOf(stream.Context())
		if c == nil {
			return status.Error(codes.Internal, "the connection is not counted")
		}
		if host := authn.PrincipalOfAddress(c.RemoteAddr()); host != "127.0.0.1" {
			return status.Errorf(codes.Internal, "the connection is one of %q, want 127.0.0.1", host)
		}
		for {
			if err := stream.RecvMsg(new(grpc_health_v1.HealthCheckRequest)); err != nil {
				return err
			}
			c.in.mu.Lock()
			incomplete := c.incomplete
			c.in.mu.Unlock()
			answer := &grpc_health_v1.HealthCheckRequest{Service: strconv.FormatInt(incomplete, 10)}
			if err := stream.SendMsg(answer); err != nil {
				return err
			}
		}
	}
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test", Streams: []grpc.StreamDesc{{
		StreamName: "Echo", Handler: receive, ServerStreams: true, ClientStreams: true}}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	defer serving.Wait()
	defer s.Stop()
	conn, err := grpc.NewClient(l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := conn.NewStream(t.Context(),
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test/Echo")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		message := &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", rand.IntN(1000))}
		if err := stream.SendMsg(message); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		answer := new(grpc_health_v1.HealthCheckRequest)
		if err := stream.RecvMsg(answer); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if answer.Service != "0" {
			t.Fatalf("after message %d, %s bytes are counted, want none", i, answer.Service)
		}
	}
}

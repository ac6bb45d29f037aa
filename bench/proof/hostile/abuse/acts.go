package abuse

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// act is one kind of abuse. play runs until ctx ends. Its error counts only if it is a finding.
type act struct {
	name string
	play func(ctx context.Context, s *stranger) error
}

var all = []act{
	{"garbage", garbage},
	{"malformed frames", malformedFrames},
	{"oversized frames", oversizedFrames},
	{"half-open connections", halfOpen},
	{"slow bytes", slowBytes},
	{"forged peers", forgedPeers},
	{"forged servers", forgedServers},
	{"replayed hellos", replayedHellos},
	{"flood of streams", floodOfStreams},
	{"flood of requests", floodOfRequests},
	{"stalled reader", stalledReader},
	{"hostile requests", hostileRequests},
	{"empty operations", emptyOperations},
	{"empty calls", emptyCalls},
	{"packed loads", packedLoads},
	{"incomplete calls", incompleteCalls},
	{"reset calls", resetCalls},
	{"garbage by HTTP/2", garbageFrames},
	{"HTTP port", httpPort},
}

// The beginning of a connection of package rpc/transport, and its frames. They are written again
// here, because abuse of the protocol must not use the code that keeps the protocol's rules.
const (
	preface    = "\x01tidemark 1\n"
	protocol   = "tidemark/1"
	controlBit = 1 << 31
)

func frame(length uint32, content []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, length), content...)
}

// open opens a connection and sends a hello.
func (s *stranger) open(ctx context.Context, hello []byte) (net.Conn, error) {
	conn, err := s.connect(ctx, protocol)
	if err != nil {
		return nil, err
	}
	var begin []byte
	if s.TLS == nil {
		begin = []byte(preface)
	}
	hello = append([]byte{'o'}, hello...)
	_, err = conn.Write(append(begin, frame(controlBit|uint32(len(hello)), hello)...))
	return conn, err
}

// clientHello is the hello of a client.
func clientHello(client, stream uint64) []byte {
	b, _ := (&kvpb.BatchRequest{Hello: &kvpb.Hello{Client: client, Stream: stream}}).MarshalVT()
	return append([]byte{'c'}, b...)
}

// message is a message of a client.
func message(requests ...*kvpb.Request) []byte {
	b, _ := (&kvpb.BatchRequest{Requests: requests}).MarshalVT()
	return frame(uint32(len(b)), b)
}

// repeat calls play again and again.
func repeat(ctx context.Context, pause time.Duration, play func() error) (err error) {
	for rest(ctx, pause) {
		if err = play(); err != nil {
			if _, ok := err.(*finding); ok {
				return err
			}
		}
	}
	return err
}

func garbage(ctx context.Context, s *stranger) error {
	return repeat(ctx, time.Millisecond, func() error {
		ports := append(append([]string(nil), s.Addresses...), s.HTTP...)
		conn, err := s.dial(ctx, ports[s.random.IntN(len(ports))])
		if err != nil {
			return err
		}
		defer conn.Close()
		b := s.garbage(1 + s.random.IntN(64<<10))
		if s.random.IntN(2) == 0 {
			copy(b, preface)
		}
		_, err = conn.Write(b)
		return err
	})
}

func malformedFrames(ctx context.Context, s *stranger) error {
	return repeat(ctx, time.Millisecond, func() error {
		conn, err := s.open(ctx, clientHello(s.random.Uint64()|1, 1))
		if err != nil {
			return err
		}
		defer conn.Close()
		go io.Copy(io.Discard, conn)
		for range s.random.IntN(20) {
			b := s.garbage(s.random.IntN(200))
			length := uint32(len(b))
			switch s.random.IntN(4) {
			case 0:
				length = s.random.Uint32()
			case 1:
				length |= controlBit
			}
			if _, err := conn.Write(frame(length, b)); err != nil {
				return err
			}
		}
		return nil
	})
}

func oversizedFrames(ctx context.Context, s *stranger) error {
	return repeat(ctx, 10*time.Millisecond, func() error {
		conn, err := s.open(ctx, clientHello(s.random.Uint64()|1, 1))
		if err != nil {
			return err
		}
		// The connection stays open, so that the server has to keep what was sent.
		if _, err := conn.Write(frame(80<<20, nil)); err != nil {
			return err
		}
		for range 1 + s.random.IntN(79) {
			if _, err := conn.Write(make([]byte, 1<<20)); err != nil || ctx.Err() != nil {
				return err
			}
		}
		return nil
	})
}

func halfOpen(ctx context.Context, s *stranger) error {
	for range 4000 {
		if _, err := s.dial(ctx, s.address()); err != nil && ctx.Err() != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func slowBytes(ctx context.Context, s *stranger) error {
	begin := append([]byte(preface), frame(controlBit|100, []byte("o"))...)
	for range 50 {
		go func() {
			conn, err := s.dial(ctx, s.Addresses[0])
			if err != nil {
				return
			}
			for i := 0; rest(ctx, 200*time.Millisecond); i++ {
				if _, err := conn.Write(begin[i%len(begin) : i%len(begin)+1]); err != nil {
					return
				}
			}
		}()
	}
	<-ctx.Done()
	return nil
}

// forgedPeers pretends to be another server's host.
func forgedPeers(ctx context.Context, s *stranger) error {
	return repeat(ctx, time.Millisecond, func() error {
		realm := []string{"data", "core", "", "nonsense"}[s.random.IntN(4)]
		hello := []byte{'p'}
		for _, n := range []uint64{s.Cluster, 1 + s.random.Uint64N(4), 1 + s.random.Uint64N(4)} {
			hello = binary.LittleEndian.AppendUint64(hello, n)
		}
		conn, err := s.open(ctx, append(hello, realm...))
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		answer := make([]byte, 5)
		if _, err := io.ReadFull(conn, answer); err != nil {
			return err
		}
		if answer[4] == 'a' {
			return &finding{fmt.Sprintf("a stranger was accepted as a host of %q", realm)}
		}
		return nil
	})
}

// grpc makes a gRPC connection.
func (s *stranger) grpc(ctx context.Context) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if s.TLS != nil {
		creds = credentials.NewTLS(s.TLS)
	}
	return grpc.NewClient("passthrough:///"+s.address(), grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(_ context.Context, address string) (net.Conn, error) {
			return s.dial(ctx, address)
		}))
}

// forgedServers makes calls that only servers may make.
func forgedServers(ctx context.Context, s *stranger) error {
	conn, err := s.grpc(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	core, founding := clusterpb.NewCoreClient(conn), clusterpb.NewBootstrapClient(conn)
	return repeat(ctx, time.Millisecond, func() error {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var err error
		what := ""
		switch s.random.IntN(6) {
		case 0:
			what = "registered as a node"
			_, err = core.RegisterNode(call, &clusterpb.RegisterNodeRequest{Cluster: s.Cluster,
				Server:  s.random.Uint64() | 1,
				Address: fmt.Sprintf("127.0.0.1:%d", 1+s.random.IntN(65535))})
		case 1:
			what = "sent a heartbeat"
			_, err = core.Heartbeat(call, &clusterpb.HeartbeatRequest{Cluster: s.Cluster,
				Node: 1 + s.random.Uint64N(4)})
		case 2:
			what = "followed the metadata"
			stream, streamErr := core.WatchMetadata(call, &clusterpb.WatchMetadataRequest{})
			if err = streamErr; err == nil {
				_, err = stream.Recv()
			}
		case 3:
			what = "greeted a forming core"
			_, err = founding.Hello(call, &clusterpb.BootstrapHello{})
		case 4:
			what = "founded a core"
			_, err = founding.Accept(call, &clusterpb.Founding{})
		case 5:
			what = "sent a snapshot"
			stream, streamErr := peerpb.NewPeerClient(conn).Snapshot(
				metadata.AppendToOutgoingContext(call,
					"tidemark-realm", "data", "tidemark-cluster", fmt.Sprintf("%x", s.Cluster),
					"tidemark-from", "1", "tidemark-to", "2"))
			if err = streamErr; err == nil {
				_, err = stream.CloseAndRecv()
			}
		}
		switch status.Code(err) {
		case codes.PermissionDenied, codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
			return err
		case codes.ResourceExhausted, codes.Unimplemented:
			return err
		}
		return &finding{fmt.Sprintf("a stranger has %s: %v", what, err)}
	})
}

// replayedHellos opens streams of one client with numbers that were used before.
func replayedHellos(ctx context.Context, s *stranger) error {
	client := s.random.Uint64() | 1
	return repeat(ctx, time.Millisecond, func() error {
		conn, err := s.open(ctx, clientHello(client, 1+s.random.Uint64N(3)))
		if err != nil {
			return err
		}
		defer conn.Close()
		q := &kvpb.Request{Id: 1, Sequence: 1, Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}
		for range 3 {
			if _, err := conn.Write(message(q)); err != nil {
				return err
			}
		}
		return nil
	})
}

func floodOfStreams(ctx context.Context, s *stranger) error {
	for range 3000 {
		conn, err := s.open(ctx, clientHello(s.random.Uint64()|1, 1))
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			continue
		}
		go io.Copy(io.Discard, conn)
	}
	<-ctx.Done()
	return nil
}

func now(id uint64) *kvpb.Request {
	return &kvpb.Request{Id: id, Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}
}

func floodOfRequests(ctx context.Context, s *stranger) error {
	conn, err := s.open(ctx, clientHello(s.random.Uint64()|1, 1))
	if err != nil {
		return err
	}
	go io.Copy(io.Discard, conn)
	for id := uint64(1); ctx.Err() == nil; {
		var requests []*kvpb.Request
		for range 100 {
			requests = append(requests, now(id))
			id++
		}
		if _, err := conn.Write(message(requests...)); err != nil {
			return err
		}
	}
	return nil
}

// stalledReader requests a lot, and reads no answer.
func stalledReader(ctx context.Context, s *stranger) error {
	for range 20 {
		go func() {
			conn, err := s.open(ctx, clientHello(uint64(time.Now().UnixNano())|1, 1))
			if err != nil {
				return
			}
			for id := uint64(1); ctx.Err() == nil; id++ {
				if _, err := conn.Write(message(now(id))); err != nil {
					return
				}
			}
		}()
	}
	<-ctx.Done()
	return nil
}

// hostileRequests sends requests that are well formed but make no sense.
func hostileRequests(ctx context.Context, s *stranger) error {
	conn, err := s.open(ctx, clientHello(s.random.Uint64()|1, 1))
	if err != nil {
		return err
	}
	go io.Copy(io.Discard, conn)
	far := func() *kvpb.Timestamp {
		return &kvpb.Timestamp{Wall: s.random.Uint64() >> s.random.IntN(2), Logical: s.random.Uint32()}
	}
	key := func() []byte { return s.garbage(s.random.IntN(9000)) }
	transaction := func() *kvpb.Transaction {
		return &kvpb.Transaction{Id: s.garbage(16), Begun: far(), Started: far(),
			Keyspace: s.random.Uint32N(5), Anchor: key()}
	}
	for id := uint64(1); ctx.Err() == nil; id++ {
		q := &kvpb.Request{Id: id, Sequence: id, Partition: s.random.Uint64N(40), Generation: 1,
			Term: 1 + s.random.Uint64N(4)}
		if s.random.IntN(2) == 0 {
			q.Session = far()
		}
		switch s.random.IntN(8) {
		case 0:
			q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: key(), Value: key()}}
		case 1:
			q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: key()}}
		case 2:
			q.Command = &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: key(), End: key()}}
		case 3:
			q.Command = &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{Transaction: transaction(),
				AtLeast: far(), Mutations: []*kvpb.Mutation{{Key: key(),
					Kind: kvpb.Mutation_Kind(s.random.IntN(9))}}}}
		case 4:
			q.Command = &kvpb.Request_EndTransaction{EndTransaction: &kvpb.EndTransactionRequest{
				Transaction: transaction(), CommitTimestamp: far()}}
		case 5:
			q.Command = &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
				Resolutions: []*kvpb.Resolution{{Transaction: s.garbage(s.random.IntN(20)),
					Status: &kvpb.TransactionStatus{State: kvpb.TransactionState(s.random.IntN(5)),
						Timestamp: far()}}}}}
		case 6:
			q.Command = &kvpb.Request_Push{Push: &kvpb.PushRequest{Pushee: transaction(),
				Kind: kvpb.PushRequest_Kind(s.random.IntN(4)), Seen: far(), Above: far()}}
		case 7:
			q.Command = &kvpb.Request_DeleteRange{DeleteRange: &kvpb.DeleteRangeRequest{Start: key(),
				End: key()}}
		}
		if _, err := conn.Write(message(q)); err != nil {
			return err
		}
	}
	return nil
}

// emptyOperations sends requests that are small on the wire and large when decoded.
func emptyOperations(ctx context.Context, s *stranger) error {
	batch := &kvpb.WriteBatchRequest{}
	for range 250_000 {
		batch.Operations = append(batch.Operations, &kvpb.WriteOperation{})
	}
	return repeat(ctx, 10*time.Millisecond, func() error {
		conn, err := s.open(ctx, clientHello(s.random.Uint64()|1, 1))
		if err != nil {
			return err
		}
		for id := range uint64(8) {
			q := &kvpb.Request{Id: id + 1, Sequence: id + 1, Partition: 1,
				Command: &kvpb.Request_WriteBatch{WriteBatch: batch}}
			if _, err := conn.Write(message(q)); err != nil {
				return err
			}
		}
		return nil
	})
}

// calls opens an HTTP/2 connection without a client library.
func (s *stranger) calls(ctx context.Context) (*http2.Framer, error) {
	conn, err := s.connect(ctx, "h2")
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	f := http2.NewFramer(conn, conn)
	reader := http2.NewFramer(io.Discard, conn)
	go func() {
		for ctx.Err() == nil {
			if _, err := reader.ReadFrame(); err != nil {
				return
			}
		}
	}()
	return f, f.WriteSettings()
}

// call begins a call.
func call(f *http2.Framer, id uint32, method string) error {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method},
		{":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(),
		EndHeaders: true})
}

// incompleteCalls begins messages of 79 MiB to a method that needs a hundred bytes.
func incompleteCalls(ctx context.Context, s *stranger) error {
	return repeat(ctx, 10*time.Millisecond, func() error {
		f, err := s.calls(ctx)
		if err != nil {
			return err
		}
		for id := uint32(1); id < 120; id += 2 {
			if err := call(f, id, clusterpb.Cluster_Status_FullMethodName); err != nil {
				return err
			}
			_ = f.WriteData(id, false, binary.BigEndian.AppendUint32([]byte{0}, 79<<20))
		}
		for range 60 {
			for id := uint32(1); id < 120; id += 2 {
				if err := f.WriteData(id, false, make([]byte, 16<<10)); err != nil || ctx.Err() != nil {
					return err
				}
			}
		}
		return nil
	})
}

// resetCalls begins calls and resets them (CVE-2023-44487).
func resetCalls(ctx context.Context, s *stranger) error {
	return repeat(ctx, 10*time.Millisecond, func() error {
		f, err := s.calls(ctx)
		if err != nil {
			return err
		}
		for id := uint32(1); ctx.Err() == nil && id < 1<<20; id += 2 {
			if err := call(f, id, clusterpb.Cluster_Status_FullMethodName); err != nil {
				return err
			}
			if err := f.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				return err
			}
		}
		return nil
	})
}

func garbageFrames(ctx context.Context, s *stranger) error {
	return repeat(ctx, time.Millisecond, func() error {
		f, err := s.calls(ctx)
		if err != nil {
			return err
		}
		for range 1 + s.random.IntN(50) {
			if err := f.WriteRawFrame(http2.FrameType(s.random.IntN(12)), http2.Flags(s.random.Uint32()),
				s.random.Uint32()>>s.random.IntN(31), s.garbage(s.random.IntN(1000))); err != nil {
				return err
			}
		}
		return nil
	})
}

func httpPort(ctx context.Context, s *stranger) error {
	if len(s.HTTP) == 0 {
		return nil
	}
	address := s.HTTP[s.random.IntN(len(s.HTTP))]
	for range 200 {
		if conn, err := s.dial(ctx, address); err == nil {
			_, _ = conn.Write([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\nX: "))
			_, _ = conn.Write(bytes.Repeat([]byte("y"), s.random.IntN(2<<20)))
		}
	}
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return s.dial(ctx, address)
		}}}
	return repeat(ctx, time.Millisecond, func() error {
		path := []string{"/metrics", "/readyz", "/debug/pprof/heap", "/%00", "/" + string(make([]byte,
			100))}[s.random.IntN(5)]
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(q)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
}

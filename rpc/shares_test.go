package rpc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestDecodedSize: what is decoded counts, and not what is encoded.
func TestDecodedSize(t *testing.T) {
	empty := &kvpb.BatchRequest{Requests: []*kvpb.Request{{Id: 1, Command: &kvpb.Request_WriteBatch{
		WriteBatch: &kvpb.WriteBatchRequest{}}}}}
	batch := empty.Requests[0].GetWriteBatch()
	for range 10_000 {
		batch.Operations = append(batch.Operations, &kvpb.WriteOperation{})
	}
	b, err := empty.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	if size := wire.DecodedSize(b, empty); len(b) > 30_000 || size < 10_000*wire.PartBytes {
		t.Errorf("%d bytes decode to %d", len(b), size)
	}
	value := bytes.Repeat([]byte("v"), 1<<20)
	large := &kvpb.BatchRequest{Requests: []*kvpb.Request{put("k", value)}}
	if b, err = large.MarshalVT(); err != nil {
		t.Fatal(err)
	}
	if size := wire.DecodedSize(b, large); size > len(b)+10*wire.PartBytes {
		t.Errorf("%d bytes decode to %d", len(b), size)
	}
}

// TestHostsShareMemory: a host whose requests are not answered is told so when they hold its share,
// and others are served.
func TestHostsShareMemory(t *testing.T) {
	n := network{mem: memnet.New()}
	const limit = 16 << 20
	_, server, _ := serveBatch(t, n, "s:1", BatchServerConfig{MaxBytes: limit,
		Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			if client == 2 {
				echoAll(client, batch, reply)
			} // else it keeps them
		}})
	greedy, end := openConn(t, n.dialer(t, "greedy"), "s:1")
	defer end()
	value := make([]byte, 256<<10)
	refused := make(chan uint64, 1)
	if err := greedy.Send(&kvpb.BatchRequest{Hello: hello(1, 1)}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			r, err := greedy.Recv()
			if err != nil {
				return
			}
			for _, one := range r.Responses {
				if one.GetError().GetCode() == kvpb.ErrorCode_OVERLOADED {
					select {
					case refused <- one.Id:
					default:
					}
				}
			}
		}
	}()
	sent := uint64(0)
	for id := uint64(0); id == 0; {
		sent++
		q := put("k", value)
		q.Id = sent
		if err := greedy.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{q}}); err != nil {
			t.Fatal(err)
		}
		select {
		case id = <-refused:
		default:
		}
		if sent > 4*limit/uint64(len(value)) {
			t.Fatalf("%d requests were taken in", sent)
		}
	}
	if held := server.memory.Held(); held > limit/2+mostPieceBytes {
		t.Errorf("the greedy host holds %d bytes", held)
	}
	conn := batchConn(t, n.dialer(t, "other"), "s:1", func(c *client.BatchConfig) { c.Client = 2 })
	for range 100 {
		if r, err := conn.Do(t.Context(), put("k", value)); err != nil || r.Error != nil {
			t.Fatal(r, err)
		}
	}
	end()
	await(t, "memory comes back",
		func() bool { return server.memory.Held() <= (spare+1)*mostPieceBytes })
}

// TestALargeMessageNeedsMemory: a message that is not complete holds no more than its host's share.
func TestALargeMessageNeedsMemory(t *testing.T) {
	n := network{mem: memnet.New()}
	_, server, _ := serveBatch(t, n, "s:1", BatchServerConfig{Handle: echoAll, MaxBytes: 8 << 20})
	h, err := helloOfClient(hello(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := n.dialer(t, "c").Open(t.Context(), "s:1", h)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.AwaitAccepted(); err != nil {
		t.Fatal(err)
	}
	raw := conn.Raw()
	go func() {
		_, _ = raw.Write(binary.LittleEndian.AppendUint32(nil, transport.MaxMessageBytes))
		for piece := make([]byte, 64<<10); err == nil; {
			_, err = raw.Write(piece)
		}
	}()
	if _, err := conn.Receive(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	await(t, "memory comes back", func() bool { return server.memory.Held() == 0 })
}

// TestHostsShareConnections: a host that opens too many loses others of its own.
func TestHostsShareConnections(t *testing.T) {
	addr, lost := servesCluster(t, ServerConfig{MaxConnections: 100})
	for range 300 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	await(t, "connections are displaced", func() bool { return lost("connections_displaced") >= 240 })
	d := client.NewDialer(client.DialerConfig{})
	defer d.Close()
	if _, err := clusterpb.NewClusterClient(mustConn(t, d, addr)).Status(t.Context(),
		&clusterpb.StatusRequest{}); err != nil {
		t.Error(err)
	}
}

// servesCluster serves the Cluster service, and gives the address and a look at a counter.
func servesCluster(t *testing.T, c ServerConfig) (string, func(name string) float64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(c)
	s.places = quota.NewPlaces(cmp.Or(c.MaxConnections, 1000), 32, 0)
	clusterpb.RegisterClusterServer(s, &clusterServer{})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return l.Addr().String(), func(name string) float64 {
		switch name {
		case "connections_displaced":
			return s.metrics.placesLost.Value()
		}
		return s.metrics.inboundClosed.Value()
	}
}

// TestIncompleteMessages: of connections with messages of gRPC that do not end, the one with most
// is closed, and others are served.
func TestIncompleteMessages(t *testing.T) {
	addr, closed := servesCluster(t, ServerConfig{MaxInbound: 4 << 20})
	d := client.NewDialer(client.DialerConfig{})
	defer d.Close()
	honest := clusterpb.NewClusterClient(mustConn(t, d, addr))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 3 {
		raw, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		before := closed("overfull")
		go incompleteMessages(ctx, raw)
		await(t, "the connection is closed", func() bool { return closed("overfull") > before })
		if _, err := honest.Status(t.Context(), &clusterpb.StatusRequest{}); err != nil {
			t.Error(err)
		}
	}
}

// incompleteMessages begins calls whose messages are large and do not come, as far as flow control
// goes.
func incompleteMessages(ctx context.Context, raw net.Conn) {
	if _, err := raw.Write([]byte(http2.ClientPreface)); err != nil {
		return
	}
	f := http2.NewFramer(raw, raw)
	_ = f.WriteSettings()
	go func() {
		for ctx.Err() == nil {
			if _, err := f.ReadFrame(); err != nil {
				return
			}
		}
	}()
	for id := uint32(1); id < 250 && ctx.Err() == nil; id += 2 {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"},
			{":path", clusterpb.Cluster_Status_FullMethodName}, {":authority", "x"},
			{"content-type", "application/grpc"}, {"te", "trailers"}} {
			_ = e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(),
			EndHeaders: true})
		_ = f.WriteData(id, false, binary.BigEndian.AppendUint32([]byte{0}, 79<<20))
		for range wire.LeastStreamWindow/(16<<10) - 1 {
			if f.WriteData(id, false, make([]byte, 16<<10)) != nil {
				return
			}
		}
	}
}

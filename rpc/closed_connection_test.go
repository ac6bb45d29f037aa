package rpc

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// TestNothingIsDoneForClosedConnections: what was read of a connection that is closed, or that takes
// no answers any more, is not worked off, however much that is.
func TestNothingIsDoneForClosedConnections(t *testing.T) {
	for name, end := range map[string]func(net.Conn) error{"closed": net.Conn.Close,
		"half closed": func(c net.Conn) error {
			return c.(interface{ CloseWrite() error }).CloseWrite()
		}} {
		t.Run(name, func(t *testing.T) { testClosedConnection(t, end) })
	}
}

func testClosedConnection(t *testing.T, closeConn func(net.Conn) error) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(ServerConfig{
		CPU: quota.NewCPULimiter(1, func() bool { return false })})
	var handled atomic.Int32
	ended := make(chan struct{})
	s.ServeClients(NewBatchServer(BatchServerConfig{Handle: func(_ uint64, batch []*kvpb.Request,
		reply func(*kvpb.Response)) {
		if handled.Add(1) == 1 {
			s.mu.Lock()
			for c := range s.mu.conns {
				_ = closeConn(c.Raw())
			}
			s.mu.Unlock()
		}
		echoAll(0, batch, reply)
	}}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(raw)
	}()
	stream, end := openConn(t, network{}.dialer(t, "c"), raw.Addr().String())
	defer end()
	if err := stream.Send(&kvpb.BatchRequest{Hello: &kvpb.Hello{Client: 1, Stream: 1}}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = lastError(stream)
	}()
	// All of them in one write: the server has read them when it handles the first.
	const messages = 500
	var all []byte
	for id := range uint64(messages) {
		b, err := proto.Marshal(&kvpb.BatchRequest{Requests: []*kvpb.Request{
			{Id: id + 1, Sequence: id + 1, Command: get("key").Command}}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(binary.LittleEndian.AppendUint32(all, uint32(len(b))), b...)
	}
	if _, err := stream.(*handConn).conn.Raw().Write(all); err != nil {
		t.Fatal(err)
	}
	<-ended
	s.serving.Wait() // the connection ends by itself
	s.Stop()
	<-served
	if n := handled.Load(); n == 0 || n > messages/10 {
		t.Errorf("%d of %d messages were handled", n, messages)
	}
}

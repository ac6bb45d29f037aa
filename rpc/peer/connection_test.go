package peer

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// currentStream is the consensus stream to a host, nil if there is none.
func currentStream(t *Transport, host uint64) *stream {
	l := t.link(host, ClassConsensus)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.stream
}

// No message is lost, doubled or overtaken, over any kind of connection.
func TestPeerMessagesKeepTheirOrder(t *testing.T) {
	for _, n := range networks(t) {
		hosts := newHosts(t, n, 2)
		var got atomic.Uint64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) {
			for _, m := range b.Messages {
				if next := got.Load(); m.Index != next || len(m.Entries[0].Data) != int(m.Index%300)*50 {
					t.Errorf("%d came in place of %d", m.Index, next)
				}
				got.Add(1)
			}
		}
		for sent := range uint64(2000) {
			hosts[0].transport.Send(2, ClassConsensus,
				[]*peerpb.RaftMessage{message(sent, int(sent%300)*50)})
			await(t, "room in the queue", func() bool { return sent+1-got.Load() < 500 })
		}
		await(t, "all have come", func() bool { return got.Load() == 2000 })
	}
}

// A receiver that does not read holds up no direct sender; afterwards everything arrives.
func TestPeerDirectSendDoesNotBlock(t *testing.T) {
	for _, n := range networks(t) {
		hosts := newHosts(t, n, 2, func(c *Config) { c.MaxQueueBytes = 1 << 30 })
		var got atomic.Uint64
		gate := make(chan struct{})
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) {
			if got.Load() > 0 {
				<-gate
			}
			for _, m := range b.Messages {
				if m.Index != got.Load() {
					t.Errorf("%d came in place of %d", m.Index, got.Load())
				}
				got.Add(1)
			}
		}
		sent := uint64(0)
		send := func(size int) {
			hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(sent, size)})
			sent++
		}
		send(1)
		await(t, "the first has come", func() bool { return got.Load() == 1 })
		for range 400 {
			stream := currentStream(hosts[0].transport, 2)
			stream.out.Lock()
			stream.lastSend = time.Time{} // so that the next is a direct send
			stream.out.Unlock()
			send(100 << 10)
		}
		close(gate)
		await(t, "all have come", func() bool { return got.Load() == sent })
	}
}

// A connection that breaks is reported, and made again.
func TestPeerConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		hosts := newHosts(t, n, 2)
		var got, unreachable atomic.Int64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
		hosts[0].unreachable = func(uint64) { unreachable.Add(1) }
		send := func() {
			hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 10)})
		}
		send()
		time.Sleep(time.Minute) // keepalives go on
		if unreachable.Load() != 0 || got.Load() != 1 {
			t.Fatalf("unreachable %d, got %d", unreachable.Load(), got.Load())
		}
		n.mem.Drop("h1", "h2")
		synctest.Wait()
		if unreachable.Load() == 0 {
			t.Fatal("the loss was not reported")
		}
		time.Sleep(time.Second)
		send()
		synctest.Wait()
		if got.Load() != 2 {
			t.Fatalf("%d arrived", got.Load())
		}
		hosts[0].transport.Close()
	})
}

// Two hosts that lose each other without a word notice it, and find each other again.
func TestPeerConnectionFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		hosts := newHosts(t, n, 2)
		var got, unreachable atomic.Int64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
		hosts[0].unreachable = func(uint64) { unreachable.Add(1) }
		send := func() {
			hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 10)})
		}
		send()
		time.Sleep(time.Second)
		n.mem.CutBoth("h1", "h2", memnet.Stall)
		send()
		time.Sleep(wire.ClientSilence + time.Second)
		if unreachable.Load() == 0 {
			t.Fatal("the silence was not noticed")
		}
		n.mem.Heal("h1", "h2")
		for before := got.Load(); got.Load() == before; {
			send()
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// Whatever strangers send, they are refused or get a closed connection, and the server goes on.
func TestServerRefusesStrangers(t *testing.T) {
	hosts := newHosts(t, network{}, 1)
	addr := hosts[0].addr
	for _, text := range []string{"\x01something else", "\x01tidemark 1\n\xff\xff\xff\xff",
		"\x01tidemark 1\n\x01\x00\x00\x80k", "GET / HTTP/1.1\r\n\r\n"} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn)
		_ = conn.Close()
	}
	d := network{}.dialer(t, "")
	good := identity{"node", testCluster, 2, 1}
	for _, c := range []struct {
		hello []byte
		code  codes.Code
	}{
		{nil, codes.Unimplemented},
		{[]byte("x"), codes.Unimplemented},
		{[]byte{wire.HelloClient}, codes.Unimplemented}, // no clients are served
		{[]byte{wire.HelloPeer}, codes.InvalidArgument},
		{good.hello()[:20], codes.InvalidArgument},
		{identity{"core", testCluster, 2, 1}.hello(), codes.NotFound},
		{identity{"node", 0, 2, 1}.hello(), codes.InvalidArgument},
		{identity{"node", 5, 2, 1}.hello(), codes.FailedPrecondition},
		{identity{"node", testCluster, 0, 1}.hello(), codes.InvalidArgument},
		{identity{"node", testCluster, 1, 1}.hello(), codes.FailedPrecondition},
		{identity{"node", testCluster, 2, 3}.hello(), codes.FailedPrecondition},
		{good.hello(), codes.OK},
	} {
		conn, err := d.Open(t.Context(), addr, c.hello)
		if err != nil {
			t.Fatal(err)
		}
		// What follows a hello that is refused is not received.
		raw, err := (&peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{message(1, 1)}}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Send(raw)
		if err := conn.AwaitAccepted(); status.Code(err) != c.code {
			t.Errorf("%q: %v, want %v", c.hello, err, c.code)
		}
		_ = conn.Close()
	}
}

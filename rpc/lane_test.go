package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// currentLane is the lane of the consensus stream to a host, nil if that has none.
func currentLane(t *PeerTransport, host uint64) *laneSender {
	l := t.link(host, ClassConsensus)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.stream == nil {
		return nil
	}
	l.mu.stream.out.mu.Lock()
	defer l.mu.stream.out.mu.Unlock()
	lane, _ := l.mu.stream.out.mu.stream.(*laneSender)
	return lane
}

// await waits for a condition.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("in vain: ", what)
		}
	}
}

// Messages move to the lane while they flow, and none is lost, doubled or overtaken by it; over TCP and over memnet.
func TestLaneTakesOver(t *testing.T) {
	for _, n := range []network{{}, {memnet.New()}} {
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
		sent := uint64(0)
		send := func() {
			hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(sent, int(sent%300)*50)})
			sent++
		}
		for currentLane(hosts[0].transport, 2) == nil {
			send()
			await(t, "room in the queue", func() bool { return sent-got.Load() < 500 })
		}
		for range 2000 {
			send()
			await(t, "room in the queue", func() bool { return sent-got.Load() < 500 })
		}
		await(t, "all have come", func() bool { return got.Load() == sent })
	}
}

// A receiver that does not read holds up nobody who sends directly; afterwards everything arrives.
func TestLaneDirectSendDoesNotBlock(t *testing.T) {
	hosts := newHosts(t, network{}, 2, func(c *PeerConfig) { c.MaxQueueBytes = 1 << 30 })
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
	await(t, "a lane", func() bool { return currentLane(hosts[0].transport, 2) != nil && got.Load() == 1 })
	l := hosts[0].transport.link(2, ClassConsensus)
	for range 400 {
		l.mu.Lock()
		out, stream := l.mu.stream.out, l.mu.stream
		l.mu.Unlock()
		out.mu.Lock()
		stream.lastSend = time.Time{} // so that the next is a direct send
		out.mu.Unlock()
		send(100 << 10)
	}
	close(gate)
	await(t, "all have come", func() bool { return got.Load() == sent })
}

// A lane that breaks ends its stream, and the next one does without for a while.
func TestLaneBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{memnet.New()}
		hosts := newHosts(t, n, 2)
		var got, unreachable atomic.Int64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
		hosts[0].unreachable = func(uint64) { unreachable.Add(1) }
		send := func() { hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 10)}) }
		send()
		synctest.Wait()
		lane := currentLane(hosts[0].transport, 2)
		if lane == nil {
			t.Fatal("no lane")
		}
		_ = lane.conn.Close()
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
		if currentLane(hosts[0].transport, 2) != nil {
			t.Fatal("a lane again, so soon")
		}
		time.Sleep(laneRetry)
		hosts[0].transport.Close()
	})
}

// When the two hosts lose each other, the lane goes with the stream, and both come back.
func TestLaneEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{memnet.New()}
		hosts := newHosts(t, n, 2)
		var got atomic.Int64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
		send := func() { hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 10)}) }
		send()
		time.Sleep(2 * laneProven)
		lane := currentLane(hosts[0].transport, 2)
		if lane == nil {
			t.Fatal("no lane")
		}
		n.mem.Cut("h1", "h2", memnet.Stall)
		for range 50 {
			send()
			time.Sleep(100 * time.Millisecond)
		}
		if _, err := lane.conn.Write([]byte{0}); err == nil {
			t.Fatal("the lane has outlived its stream")
		}
		n.mem.Heal("h1", "h2")
		before := got.Load()
		for currentLane(hosts[0].transport, 2) == nil || got.Load() == before {
			send()
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// Whatever strangers send in the place of a lane, they get a closed connection, and gRPC goes on.
func TestLaneRefusesStrangers(t *testing.T) {
	lanes := NewLanes()
	addr, _ := network{}.serveLanes(t, "", lanes, func(s *grpc.Server) {
		RegisterPeerServer(s, nil)
	})
	spent, conns, withdraw := lanes.offer()
	withdrawn, _, end := lanes.offer()
	end()
	defer withdraw()
	dial := func(text string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	good := dial(laneHello + spent)
	if b, err := io.ReadAll(io.LimitReader(good, 1)); err != nil || string(b) != string([]byte{laneAccepted}) {
		t.Fatalf("%q, %v", b, err)
	}
	defer (<-conns).Close()
	for _, text := range []string{laneHello + spent, laneHello + withdrawn, laneHello + "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "\x01something else", "GET / HTTP/1.1\r\n\r\n"} {
		conn := dial(text)
		_ = conn.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(conn); err == nil && bytes.Contains(b, []byte{laneAccepted}) && text[0] == laneHello[0] {
			t.Errorf("%q was answered %q", text, b)
		}
	}
	d := network{}.dialer(t, "")
	if _, err := d.openLane(t.Context(), addr, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"); err == nil {
		t.Error("a lane with a token of nobody's")
	}
	stream, err := peerpb.NewPeerClient(mustConn(t, d, addr)).Messages(t.Context())
	if err == nil {
		err = stream.RecvMsg(new(peerpb.MessagesEnd))
	}
	if status.Code(err) != codes.NotFound {
		t.Fatal(err)
	}
}

// Without lanes, or if one cannot be had, messages travel on the stream.
func TestLaneCannotBeHad(t *testing.T) {
	var dials atomic.Int64
	for _, change := range []func(*PeerConfig){
		func(c *PeerConfig) { c.Lanes = nil },
		func(c *PeerConfig) {
			c.Dialer = NewDialer(DialerConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				if dials.Add(1) > 1 {
					return nil, errors.New("only one connection is allowed")
				}
				var d net.Dialer
				return d.DialContext(ctx, "tcp", addr)
			}})
			t.Cleanup(func() { _ = c.Dialer.Close() })
		},
	} {
		dials.Store(0)
		hosts := newHosts(t, network{}, 2, change)
		var got atomic.Int64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
		for range 100 {
			hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 10)})
		}
		await(t, "all have come", func() bool { return got.Load() == 100 })
		if currentLane(hosts[0].transport, 2) != nil {
			t.Error("where does this lane come from?")
		}
	}
}

// A lane's messages come out as they went in, whatever pieces the connection makes of them; what is too large or cut short is an error.
func TestLaneFraming(t *testing.T) {
	a, b := net.Pipe()
	var reader sync.WaitGroup
	defer reader.Wait()
	defer b.Close()
	var got [][]byte
	reader.Go(func() {
		if err := readLane(a, func(m []byte) error { got = append(got, m); return nil }); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	})
	var want [][]byte
	s := &laneSender{conn: b}
	for _, sizes := range [][]int{{1}, {0, 5}, {3000, 70}, {3 << 20, 9, 100}, {17}} {
		f := &frame{unwritten: new(unwritten)}
		var all []byte
		for i, size := range sizes {
			chunk := bytes.Repeat([]byte{byte(i + 1)}, size)
			all = append(all, chunk...)
			f.chunks = append(f.chunks, &chunk)
		}
		want = append(want, all)
		if len(sizes) == 2 { // as a direct send that finds no room, and what follows it
			if done, err := s.trySend(f); done || err != nil {
				t.Fatal(done, err)
			}
			if err := s.SendMsg(&frame{unwritten: new(unwritten)}); err != nil {
				t.Fatal(err)
			}
		} else if err := s.SendMsg(f); err != nil {
			t.Fatal(err)
		}
	}
	_ = b.Close()
	reader.Wait()
	if len(got) != len(want) {
		t.Fatalf("%d messages", len(got))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("message %d differs", i)
		}
	}
	for _, size := range []uint32{MaxMessageBytes + 1, 100 << 20, 40 << 20} {
		c, d := net.Pipe()
		go func() {
			_, _ = d.Write(binary.LittleEndian.AppendUint32(nil, size))
			_ = d.Close()
		}()
		if err := readLane(c, func([]byte) error { return errors.New("handled") }); err == nil || contains(err, "handled") {
			t.Error(size, err)
		}
	}
}

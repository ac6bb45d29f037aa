package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// serveBatchLanes is serveBatch on a server with lanes.
func serveBatchLanes(t testing.TB, n network, addr string, c BatchServerConfig) (string, func()) {
	t.Helper()
	c.Lanes = NewLanes()
	server := NewBatchServer(c)
	return n.serveLanes(t, addr, c.Lanes, func(s *grpc.Server) { kvpb.RegisterKVServer(s, server) })
}

// laneConn connects a new client that makes lanes.
func laneConn(t testing.TB, n network, addr string, change func(*BatchConfig)) *BatchConn {
	t.Helper()
	d := n.dialer(t, "c")
	return batchConn(t, d, addr, func(c *BatchConfig) {
		c.Dialer, c.Address = d, addr
		if change != nil {
			change(c)
		}
	})
}

// laneOf is the lane on which the client's requests leave, nil if there is none.
func laneOf(b *BatchConn) *laneSender {
	s := b.current.Load()
	if s == nil {
		return nil
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	lane, _ := s.out.mu.stream.(*laneSender)
	return lane
}

func mustEcho(t *testing.T, b *BatchConn, key string) {
	t.Helper()
	response, err := b.Do(t.Context(), get(key))
	if err != nil || string(response.GetGet().Value) != key {
		t.Fatalf("%.20q: %.20q, %v", key, response.GetGet().GetValue(), err)
	}
}

// Many callers go over to the lane while they ask, with keys of all sizes, and everyone gets his own answer.
func TestRequestsMoveToALane(t *testing.T) {
	for _, n := range []network{{}, {memnet.New()}} {
		addr, _ := serveBatchLanes(t, n, "s:1", BatchServerConfig{Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			go echoAll(client, batch[:len(batch)/2], reply)
			echoAll(client, batch[len(batch)/2:], reply)
		}})
		conn := laneConn(t, n, addr, func(c *BatchConfig) { c.MaxInFlight = 20 })
		var moved atomic.Bool
		var callers sync.WaitGroup
		for caller := range 40 {
			callers.Go(func() {
				for i := 0; i < 50 || !moved.Load() && i < 1_000_000; i++ {
					key := fmt.Sprintf("%d.%d.", caller, i) + string(bytes.Repeat([]byte("x"), rand.IntN(10)*rand.IntN(10)*rand.IntN(10)*rand.IntN(100)))
					response, err := conn.Do(t.Context(), get(key))
					if err != nil || string(response.GetGet().Value) != key {
						t.Errorf("%.20q: %.20q, %v", key, response.GetGet().GetValue(), err)
						return
					}
					if laneOf(conn) != nil {
						moved.Store(true)
					}
				}
			})
		}
		callers.Wait()
		if !moved.Load() {
			t.Fatal("no lane")
		}
		mustEcho(t, conn, string(make([]byte, 3<<20)))
	}
}

// The lane does not overtake what was sent on the stream.
func TestLaneKeepsTheOrderOfRequests(t *testing.T) {
	for _, n := range []network{{}, {memnet.New()}} {
		var next atomic.Uint64
		addr, _ := serveBatchLanes(t, n, "s:1", BatchServerConfig{Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			for _, q := range batch {
				if want := next.Add(1); q.Sequence != want {
					t.Errorf("request %d came in place of %d", q.Sequence, want)
				}
			}
			echoAll(client, batch, reply)
		}})
		conn := laneConn(t, n, addr, nil)
		sequence, after := uint64(0), 0
		for after < 20 {
			if laneOf(conn) != nil {
				after++
			}
			const many = 100
			flight := NewFlight(many)
			for i := range many {
				sequence++
				q := get("key")
				q.Sequence = sequence
				if taken, err := conn.Submit(flight, []int{i}, []*kvpb.Request{q}); taken != 1 || err != nil {
					t.Fatal(taken, err)
				}
			}
			for range many {
				if _, err := flight.Outcome(<-flight.Landed()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A lane that breaks ends its stream: who waits is told, and the next stream does without one for a while.
func TestRequestsLoseTheirLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{memnet.New()}
		addr, _ := serveBatchLanes(t, n, "s:1", BatchServerConfig{Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			for _, q := range batch {
				if string(q.GetGet().Key) != "nothing" {
					reply(echo(q))
				}
			}
		}})
		conn := laneConn(t, n, addr, nil)
		several := func() {
			for range 2 * laneAfter {
				mustEcho(t, conn, "key")
			}
			synctest.Wait()
		}
		several()
		lane := laneOf(conn)
		if lane == nil {
			t.Fatal("no lane")
		}
		outcome := make(chan error, 1)
		go func() {
			_, err := conn.Do(t.Context(), get("nothing"))
			outcome <- err
		}()
		synctest.Wait()
		_ = lane.conn.Close()
		var broken *ErrStreamBroken
		if err := <-outcome; !errors.As(err, &broken) || !broken.Sent || !contains(err, "lane") {
			t.Fatal(err)
		}
		several()
		if laneOf(conn) != nil {
			t.Fatal("a lane again, so soon")
		}
		time.Sleep(laneRetry)
		several()
		if laneOf(conn) == nil {
			t.Fatal("no lane")
		}
	})
}

// When the two lose each other, the lane goes with the stream, and both come back; so it is when the server ends.
func TestLaneGoesWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{memnet.New()}
		addr, stop := serveBatchLanes(t, n, "s:1", BatchServerConfig{Handle: echoAll})
		conn := laneConn(t, n, addr, nil)
		several := func() *laneSender {
			for range 2 * laneAfter {
				mustEcho(t, conn, "key")
			}
			synctest.Wait()
			return laneOf(conn)
		}
		lane := several()
		if lane == nil {
			t.Fatal("no lane")
		}
		time.Sleep(2 * laneProven)
		n.mem.Cut("c", "s", memnet.Stall)
		var broken *ErrStreamBroken
		if _, err := conn.Do(t.Context(), get("key")); !errors.As(err, &broken) {
			t.Fatal(err)
		}
		n.mem.Heal("c", "s")
		for _, err := conn.Do(t.Context(), get("key")); err != nil; _, err = conn.Do(t.Context(), get("key")) {
			time.Sleep(100 * time.Millisecond)
		}
		if next := several(); next == nil || next == lane {
			t.Fatal("no other lane")
		}
		stop()
		if _, err := conn.Do(t.Context(), get("key")); !errors.As(err, &broken) {
			t.Fatal(err)
		}
	})
}

// On a lane too, a request whose work takes long holds up nobody, and whoever relieves its reader reads on from the lane.
func TestSlowWorkOnALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{memnet.New()}
		gate := make(chan struct{})
		var finished atomic.Int32
		addr, _ := serveBatchLanes(t, n, "s:1", BatchServerConfig{Take: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) Work {
			return &slowWork{t: t, batch: append([]*kvpb.Request(nil), batch...), reply: reply, gate: gate, finished: &finished}
		}})
		conn := laneConn(t, n, addr, nil)
		for range 2 * laneAfter {
			mustEcho(t, conn, "key")
		}
		synctest.Wait()
		if laneOf(conn) == nil {
			t.Fatal("no lane")
		}
		var slow sync.WaitGroup
		for range maxBehind - 1 {
			slow.Go(func() { mustEcho(t, conn, "slow 1") })
			synctest.Wait()
		}
		for range 10 {
			mustEcho(t, conn, "key")
		}
		close(gate)
		slow.Wait()
		mustEcho(t, conn, "key")
	})
}

// A server without lanes, and a client that makes none, stay on the stream.
func TestRequestsWithoutALane(t *testing.T) {
	n := network{}
	with, _ := serveBatchLanes(t, n, "", BatchServerConfig{Handle: echoAll})
	without, _, _ := serveBatch(t, n, "", BatchServerConfig{Handle: echoAll})
	for _, conn := range []*BatchConn{
		batchConn(t, n.dialer(t, "c"), with, nil),
		laneConn(t, n, without, nil),
		laneConn(t, n, with, func(c *BatchConfig) { c.Address, c.Client = without, 8 }),
	} {
		for range 10 * laneAfter {
			mustEcho(t, conn, "key")
		}
		if laneOf(conn) != nil {
			t.Error("there is a lane")
		}
	}
}

// A lane that was quiet is written to by whoever has a message, and one that was not is left to the outbox's goroutine.
func TestQuietLaneIsWrittenToAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		o := newOutbox() // its goroutine does not run
		o.mu.stream = &laneSender{conn: conn}
		send := func(direct bool) uint64 {
			o.mu.Lock()
			before := o.mu.sent
			r := get("key")
			if _, err := o.addLocked(tagRequests, r, r.SizeVT()); err != nil {
				t.Fatal(err)
			}
			o.unlock(direct || o.quietLocked())
			return o.mu.sent - before
		}
		for _, step := range []struct {
			after  time.Duration
			direct bool
			want   uint64
		}{{0, false, 0}, {time.Second, false, 0}, {0, true, 1}, {0, false, 0}, {directPause - 1, false, 0}, {1, false, 1}, {0, false, 0}} {
			time.Sleep(step.after)
			if got := send(step.direct); got != step.want {
				t.Fatalf("%+v: %d messages", step, got)
			}
		}
	})
}

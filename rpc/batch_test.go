package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// serveBatch runs a BatchServer at addr.
func serveBatch(t testing.TB, n network, addr string,
	c BatchServerConfig) (string, *BatchServer, func()) {
	t.Helper()
	server := NewBatchServer(c)
	addr, stop := n.serve(t, addr, func(s *Server) { s.ServeClients(server) })
	return addr, server, stop
}

// Many callers at once, with replies in any order, from other goroutines, of all sizes: each gets
// its own.
func TestBatchManyCallers(t *testing.T) {
	for _, n := range []network{{}, {mem: memnet.New()}} {
		handle := func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			if client != 7 {
				t.Errorf("client %d", client)
			}
			rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
			go echoAll(client, batch[:len(batch)/2], reply)
			echoAll(client, batch[len(batch)/2:], reply)
		}
		addr, _, _ := serveBatch(t, n, "s:1", BatchServerConfig{Handle: handle})
		conn := batchConn(t, n.dialer(t, "c"), addr, func(c *client.BatchConfig) { c.MaxInFlight = 20 })
		var callers sync.WaitGroup
		for caller := range 40 {
			callers.Go(func() {
				for i := range 50 {
					key := fmt.Sprintf("%d.%d.", caller, i)
					key += string(bytes.Repeat([]byte("x"),
						rand.IntN(10)*rand.IntN(10)*rand.IntN(10)*rand.IntN(100)))
					response, err := conn.Do(t.Context(), get(key))
					if err != nil || string(response.GetGet().Value) != key {
						t.Errorf("%.20q: %.20q, %v", key, response.GetGet().GetValue(), err)
						return
					}
				}
			})
		}
		callers.Wait()
	}
}

func TestBatchLargeValues(t *testing.T) {
	addr, _, _ := serveBatch(t, network{}, "", BatchServerConfig{Handle: echoAll})
	conn := batchConn(t, network{}.dialer(t, ""), addr, nil)
	key := string(bytes.Repeat([]byte("0123456789"), 6<<20)) // 60 MiB
	response, err := conn.Do(t.Context(), get(key))
	if err != nil || string(response.GetGet().Value) != key {
		t.Fatalf("%d bytes, %v", len(response.GetGet().GetValue()), err)
	}
	_, err = conn.Do(t.Context(), put("k", make([]byte, wire.MaxMessageBytes)))
	if !errors.Is(err, client.ErrMessageTooLarge) {
		t.Fatal(err)
	}
	if _, err := conn.Do(t.Context(), get("small")); err != nil {
		t.Fatal(err)
	}
}

// A caller whose context ends goes at once. The response that comes later disturbs no other, and
// its place is free again.
func TestBatchCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		held := make(chan func(), 10)
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: func(_ uint64, batch []*kvpb.Request,
			reply func(*kvpb.Response)) {
			for _, r := range batch {
				held <- func() { reply(echo(r)) }
			}
		}})
		conn := batchConn(t, n.dialer(t, "c"), "s:1", func(c *client.BatchConfig) { c.MaxInFlight = 1 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := conn.Do(ctx, get("a")); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		// The node still has the request, so there is no place for a second one: a caller waits,
		// with its context.
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		if _, err := conn.Do(ctx2, get("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			(<-held)() // a
			(<-held)() // c
		}()
		response, err := conn.Do(t.Context(), get("c"))
		if err != nil || string(response.GetGet().Value) != "c" {
			t.Fatalf("%v, %v", response, err)
		}
		if len(held) != 0 {
			t.Fatal("a request was sent whose caller had gone before there was a place")
		}
		if _, err := conn.Do(ctx, get("d")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

// While the node cannot be reached, requests fail as not sent; when it is back, they succeed. A
// server that dies in between leaves those it had as sent.
func TestBatchStreamBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		var broken *client.ErrStreamBroken
		if _, err := conn.Do(t.Context(), get("a")); !errors.As(err, &broken) || broken.Sent ||
			status.Code(broken) != codes.Unavailable {
			t.Fatalf("%v", err)
		}
		got := make(chan struct{}, 10)
		_, _, stop := serveBatch(t, n, "s:1", BatchServerConfig{
			Handle: func(uint64, []*kvpb.Request, func(*kvpb.Response)) { got <- struct{}{} }})
		failed := make(chan error, 2)
		time.Sleep(time.Second)
		for range 2 {
			go func() {
				_, err := conn.Do(t.Context(), get("b"))
				failed <- err
			}()
		}
		<-got
		time.Sleep(time.Second)
		stop()
		for range 2 {
			if err := <-failed; !errors.As(err, &broken) || !broken.Sent {
				t.Fatalf("%v", err)
			}
		}
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: echoAll})
		time.Sleep(time.Second)
		if _, err := conn.Do(t.Context(), get("c")); err != nil {
			t.Fatal(err)
		}
		// Requests that wait for the connection, and others for room: all get an answer when the
		// connection fails.
		n.mem.CutBoth("c", "s", memnet.Stall)
		for range 2 {
			go func() {
				_, err := conn.Do(t.Context(), put("d", make([]byte, 300<<10)))
				failed <- err
			}()
		}
		for range 2 {
			if err := <-failed; !errors.As(err, &broken) {
				t.Fatalf("%v", err)
			}
		}
		conn.Close()
		if _, err := conn.Do(t.Context(), get("e")); !errors.Is(err, client.ErrClosed) {
			t.Fatal(err)
		}
	})
}

// Close fails what is outstanding.
func TestBatchClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		serveBatch(t, n, "s:1",
			BatchServerConfig{Handle: func(uint64, []*kvpb.Request, func(*kvpb.Response)) {}})
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Do(t.Context(), get("a"))
			failed <- err
		}()
		synctest.Wait()
		conn.Close()
		var broken *client.ErrStreamBroken
		if err := <-failed; !errors.As(err, &broken) || !broken.Sent {
			t.Fatal(err)
		}
	})
}

// Bytes that wait to be sent are bounded, while one request larger than the bound still passes.
func TestBatchBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: echoAll})
		conn := batchConn(t, n.dialer(t, "c"), "s:1", func(c *client.BatchConfig) {
			c.MaxInFlightBytes = 1 << 20
		})
		if _, err := conn.Do(t.Context(), put("large", make([]byte, 3<<20))); err != nil {
			t.Fatal(err)
		}
		n.mem.Cut("c", "s", memnet.Stall)
		var callers sync.WaitGroup
		var failures atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for range 100 {
			callers.Go(func() {
				if _, err := conn.Do(ctx, put("k", make([]byte, 100<<10))); errors.Is(err,
					context.DeadlineExceeded) {
					failures.Add(1)
				}
			})
		}
		synctest.Wait()
		if pending := conn.Stats().WaitingBytes; pending > 2<<20 {
			t.Fatalf("%d bytes wait", pending)
		}
		callers.Wait()
		if failures.Load() != 100 {
			t.Fatalf("%d of 100 callers ran into their deadline", failures.Load())
		}
		n.mem.HealAll()
		if _, err := conn.Do(t.Context(), get("after")); err != nil {
			t.Fatal(err)
		}
	})
}

// The server reads no more than MaxInFlight requests without response.
func TestBatchServerBoundsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		var mu sync.Mutex
		var held []func()
		serveBatch(t, n, "s:1", BatchServerConfig{MaxInFlight: 10,
			Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
				mu.Lock()
				defer mu.Unlock()
				for _, r := range batch {
					held = append(held, func() { reply(echo(r)) })
				}
			}})
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		var callers sync.WaitGroup
		most := 0
		for i := range 100 {
			callers.Go(func() {
				if _, err := conn.Do(t.Context(), get(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // so that each goes in a message of its own
		}
		for answered := 0; answered < 100; {
			synctest.Wait()
			mu.Lock()
			now := held
			held = nil
			mu.Unlock()
			most = max(most, len(now))
			answered += len(now)
			for _, f := range now {
				f()
			}
		}
		callers.Wait()
		if most != 10 {
			t.Fatalf("%d requests in flight at a time", most)
		}
	})
}

// A request whose context ends before it was sent says so; one that was sent does not.
func TestBatchSaysWhatWasNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		serveBatch(t, n, "s:1",
			BatchServerConfig{Handle: func(uint64, []*kvpb.Request, func(*kvpb.Response)) {}})
		conn := batchConn(t, n.dialer(t, "c"), "s:1", func(c *client.BatchConfig) { c.MaxInFlight = 1 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := conn.Do(ctx, put("sent", nil)); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, client.ErrNotSent) {
			t.Fatal(err)
		}
		if _, err := conn.Do(ctx, put("over", nil)); !errors.Is(err, context.DeadlineExceeded) ||
			!errors.Is(err, client.ErrNotSent) {
			t.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := conn.Do(ctx, put("without room", nil)); !errors.Is(err,
			context.DeadlineExceeded) || !errors.Is(err, client.ErrNotSent) {
			t.Fatal(err)
		}
	})
}

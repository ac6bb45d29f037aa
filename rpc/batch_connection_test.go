package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

func mustEcho(t *testing.T, b *client.BatchConn, key string) {
	t.Helper()
	response, err := b.Do(t.Context(), get(key))
	if err != nil || string(response.GetGet().Value) != key {
		t.Fatalf("%.20q: %.20q, %v", key, response.GetGet().GetValue(), err)
	}
}

// Each of many callers gets the answer to its own request, whatever the sizes.
func TestBatchOverEveryConnection(t *testing.T) {
	for _, n := range networks(t) {
		addr, _, _ := serveBatch(t, n, "s:1", BatchServerConfig{
			Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
				go echoAll(client, batch[:len(batch)/2], reply)
				echoAll(client, batch[len(batch)/2:], reply)
			},
		})
		conn := batchConn(t, n.dialer(t, "c"), addr, func(c *client.BatchConfig) { c.MaxInFlight = 20 })
		var callers sync.WaitGroup
		for caller := range 40 {
			callers.Go(func() {
				for i := range 50 {
					size := rand.IntN(10) * rand.IntN(10) * rand.IntN(10) * rand.IntN(100)
					key := fmt.Sprintf("%d.%d.", caller, i) + string(bytes.Repeat([]byte("x"), size))
					response, err := conn.Do(t.Context(), get(key))
					if err != nil || string(response.GetGet().Value) != key {
						t.Errorf("%.20q: %.20q, %v", key, response.GetGet().GetValue(), err)
						return
					}
				}
			})
		}
		callers.Wait()
		mustEcho(t, conn, string(make([]byte, 3<<20)))
	}
}

// Requests are taken in the order in which they were submitted.
func TestBatchKeepsTheOrderOfRequests(t *testing.T) {
	for _, n := range networks(t) {
		var next atomic.Uint64
		addr, _, _ := serveBatch(t, n, "s:1", BatchServerConfig{
			Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
				for _, q := range batch {
					if want := next.Add(1); q.Sequence != want {
						t.Errorf("request %d came in place of %d", q.Sequence, want)
					}
				}
				echoAll(client, batch, reply)
			},
		})
		conn := batchConn(t, n.dialer(t, "c"), addr, nil)
		sequence := uint64(0)
		for range 20 {
			const many = 100
			calls := client.NewCalls(many)
			for i := range many {
				sequence++
				q := get("key")
				q.Sequence = sequence
				if taken, err := conn.Submit(calls, []int{i}, []*kvpb.Request{q}); taken != 1 ||
					err != nil {
					t.Fatal(taken, err)
				}
			}
			for range many {
				if _, err := calls.Outcome(<-calls.Done()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// When the two lose each other, the client is told that the outcome is unknown, as soon as the
// silence is long enough; and it comes back by itself. So it is when the server ends.
func TestBatchLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		addr, _, stop := serveBatch(t, n, "s:1", BatchServerConfig{
			Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
				for _, q := range batch {
					if string(q.GetGet().Key) != "nothing" {
						reply(echo(q))
					}
				}
			},
		})
		var streams atomic.Uint64
		conn := batchConn(t, n.dialer(t, "c"), addr, func(c *client.BatchConfig) {
			c.Stream = func() uint64 { return streams.Add(1) }
		})
		mustEcho(t, conn, "key")
		time.Sleep(time.Minute) // keepalives go on
		mustEcho(t, conn, "key")
		if streams.Load() != 1 {
			t.Fatal("a quiet connection was broken")
		}
		n.mem.CutBoth("c", "s", memnet.Stall)
		var broken *client.ErrStreamBroken
		began := time.Now()
		if _, err := conn.Do(t.Context(), get("nothing")); !errors.As(err, &broken) || !broken.Sent {
			t.Fatal(err)
		}
		if lasted := time.Since(began); lasted > wire.ClientSilence+time.Second {
			t.Fatalf("noticed after %v", lasted)
		}
		n.mem.Heal("c", "s")
		for {
			if _, err := conn.Do(t.Context(), get("key")); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		if _, err := conn.Do(t.Context(), get("key")); !errors.As(err, &broken) {
			t.Fatal(err)
		}
	})
}

// After an attempt to connect that failed, requests fail at once for a moment, certainly not sent.
func TestBatchBacksOffBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		var dials atomic.Int64
		dialer := client.NewDialer(client.DialerConfig{Dial: func(ctx context.Context,
			addr string) (net.Conn, error) {
			dials.Add(1)
			return n.mem.Dialer("c")(ctx, addr)
		}})
		defer dialer.Close()
		conn := batchConn(t, dialer, "s:1", nil)
		for range 1000 {
			_, err := conn.Do(t.Context(), get("key"))
			var broken *client.ErrStreamBroken
			if !errors.As(err, &broken) || broken.Sent {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := dials.Load(); n > 10 {
			t.Fatalf("%d attempts in a second", n)
		}
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: echoAll})
		time.Sleep(time.Second)
		mustEcho(t, conn, "key")
	})
}

// A request whose work takes long holds up no other, and the goroutine that takes over reads on.
func TestSlowWorkOnAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		gate := make(chan struct{})
		var finished atomic.Int32
		addr, _, _ := serveBatch(t, n, "s:1", BatchServerConfig{
			Take: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) Work {
				return &slowWork{t: t, batch: append([]*kvpb.Request(nil), batch...), reply: reply,
					gate: gate, finished: &finished}
			},
		})
		conn := batchConn(t, n.dialer(t, "c"), addr, nil)
		var slow sync.WaitGroup
		for range maxStolen - 1 {
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

// A client that reads nothing, and whose connection takes nothing more, is given up.
func TestClientThatReadsNothingIsGivenUp(t *testing.T) {
	addr, server, _ := serveBatch(t, network{}, "", BatchServerConfig{
		Handle: echoAll, MaxInFlightBytes: 1 << 20,
	})
	h, err := helloOfClient(&kvpb.Hello{Client: 77, Stream: 1})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := network{}.dialer(t, "").Open(t.Context(), addr, h)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.AwaitAccepted(); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); ; id++ {
		r := get(string(make([]byte, 256<<10)))
		r.Id = id
		message, err := (&kvpb.BatchRequest{Requests: []*kvpb.Request{r}}).MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		if conn.Send(message) != nil {
			break
		}
	}
	await(t, "the server has given the client up", func() bool { return server.Gone(77) })
}

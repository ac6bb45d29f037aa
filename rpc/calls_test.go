package rpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
)

// arrivals are the messages that a node has got, as the keys in each.
type arrivals struct {
	mu  sync.Mutex
	all []string
}

func (a *arrivals) add(batch []*kvpb.Request) {
	var keys []string
	for _, r := range batch {
		keys = append(keys, string(r.GetGet().GetKey()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, strings.Join(keys, " "))
}

func (a *arrivals) take() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, a.all = a.all, nil
	slices.Sort(all)
	return all
}

// submit submits gets of keys, numbered from first.
func submit(t *testing.T, b *client.BatchConn, f *client.Calls, first int, keys ...string) {
	t.Helper()
	var numbers []int
	var requests []*kvpb.Request
	for i, key := range keys {
		numbers, requests = append(numbers, first+i), append(requests, get(key))
	}
	if taken, err := b.Submit(f, numbers, requests); err != nil || taken != len(keys) {
		t.Fatalf("%d of %d taken, %v", taken, len(keys), err)
	}
}

// What is submitted to a node together is one message, and each request of it lands when its own
// answer comes.
func TestCallsEndOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		var conns []*client.BatchConn
		var got [2]arrivals
		held := make(chan func(), 1)
		for i := range 2 {
			serveBatch(t, n, fmt.Sprintf("s%d:1", i), BatchServerConfig{Handle: func(_ uint64,
				batch []*kvpb.Request, reply func(*kvpb.Response)) {
				got[i].add(batch)
				for _, r := range slices.Backward(batch) {
					if string(r.GetGet().Key) == "held" {
						held <- func() { reply(echo(r)) }
						continue
					}
					reply(echo(r))
				}
			}})
			conns = append(conns, batchConn(t, n.dialer(t, "c"), fmt.Sprintf("s%d:1", i), nil))
		}
		for round := range 3 { // the first opens the streams
			f := client.NewCalls(5)
			submit(t, conns[0], f, 0, "a", "held", "c")
			submit(t, conns[1], f, 3, "d", "e")
			seen := map[int]string{}
			land := func() {
				i := <-f.Done()
				response, err := f.Outcome(i)
				if _, twice := seen[i]; err != nil || twice {
					t.Fatal(i, err, twice)
				}
				seen[i] = string(response.GetGet().Value)
			}
			for range 4 {
				land()
			}
			if fmt.Sprint(seen) != "map[0:a 2:c 3:d 4:e]" {
				t.Error(seen)
			}
			(<-held)()
			land()
			f.Abandon()
			if seen[1] != "held" {
				t.Error(seen)
			}
			if a, b := got[0].take(), got[1].take(); fmt.Sprint(a, b) != "[a held c] [d e]" {
				t.Errorf("round %d: the messages were %q and %q", round, a, b)
			}
		}
	})
}

// Submit takes what there is room for, and nothing large; the rest is the caller's to send.
func TestCallsHaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		held := make(chan func(), 10)
		serveBatch(t, n, "s:1", BatchServerConfig{Handle: func(_ uint64, batch []*kvpb.Request,
			reply func(*kvpb.Response)) {
			for _, r := range batch {
				held <- func() { reply(echo(r)) }
			}
		}})
		conn := batchConn(t, n.dialer(t, "c"), "s:1", func(c *client.BatchConfig) { c.MaxInFlight = 3 })
		f := client.NewCalls(8)
		requests := []*kvpb.Request{get("a"), get("b"), get("c"), get("d")}
		if taken, err := conn.Submit(f, []int{0, 1, 2, 3}, requests); taken != 3 || err != nil {
			t.Fatal(taken, err)
		}
		// What is given up after it was sent keeps its place until the node has answered, and its
		// answer lands nowhere.
		synctest.Wait()
		f.Abandon()
		if taken, err := conn.Submit(f, []int{3}, requests[3:]); taken != 0 || err != nil {
			t.Fatal(taken, err)
		}
		for range 3 {
			(<-held)()
		}
		synctest.Wait()
		if len(f.Done()) != 0 {
			t.Fatal("a request ended that was given up")
		}
		requests = []*kvpb.Request{get("e"), get(strings.Repeat("x", outbox.LargeRecord)), get("g")}
		if taken, err := conn.Submit(f, []int{4, 5, 6}, requests); taken != 1 || err != nil {
			t.Fatal(taken, err)
		}
		synctest.Wait()
		(<-held)()
		if i := <-f.Done(); i != 4 {
			t.Fatal(i)
		}
		conn.Close()
		if _, err := conn.Submit(f, []int{7}, requests[:1]); !errors.Is(err, client.ErrClosed) {
			t.Fatal(err)
		}
	})
}

// A stream that breaks lands all that is on it, each as sent or not.
func TestCallsBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		outcomes := func(sent bool) {
			t.Helper()
			f := client.NewCalls(3)
			submit(t, conn, f, 0, "a", "b", "c")
			if sent {
				synctest.Wait()
				n.mem.DropHost("s")
			}
			for range 3 {
				i := <-f.Done()
				var broken *client.ErrStreamBroken
				if _, err := f.Outcome(i); !errors.As(err, &broken) || broken.Sent != sent {
					t.Fatalf("%d: %v", i, err)
				}
			}
			f.Abandon()
		}
		_, _, stop := serveBatch(t, n, "s:1", BatchServerConfig{Handle: func(_ uint64,
			batch []*kvpb.Request, reply func(*kvpb.Response)) {
			if len(batch) == 1 {
				reply(echo(batch[0]))
			}
		}})
		if _, err := conn.Do(t.Context(), get("z")); err != nil {
			t.Fatal(err)
		}
		outcomes(true)
		stop()
		outcomes(false) // no server is there
	})
}

// pieces is work in pieces, each of which answers one request.
type pieces struct {
	mu   sync.Mutex
	left []func()
}

func (p *pieces) Run() {
	for {
		p.mu.Lock()
		if len(p.left) == 0 {
			p.mu.Unlock()
			return
		}
		f := p.left[0]
		p.left = p.left[1:]
		p.mu.Unlock()
		f()
	}
}

func (p *pieces) Done() {}

// What the reader of a message answers while it works on it is not held back by what it is busy
// with.
func TestAnswersAreNotHeldBackByABusyReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		busy := make(chan struct{})
		serveBatch(t, n, "s:1", BatchServerConfig{Take: func(_ uint64, batch []*kvpb.Request,
			reply func(*kvpb.Response)) Work {
			p := &pieces{}
			for _, r := range batch {
				p.left = append(p.left, func() {
					if string(r.GetGet().Key) == "slow" {
						<-busy
					}
					reply(echo(r))
				})
			}
			return p
		}})
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		if _, err := conn.Do(t.Context(), get("z")); err != nil {
			t.Fatal(err)
		}
		f := client.NewCalls(3)
		submit(t, conn, f, 0, "a", "b", "slow")
		for range 2 {
			if i := <-f.Done(); i == 2 {
				t.Fatal("out of order")
			}
		}
		close(busy)
		if i := <-f.Done(); i != 2 {
			t.Fatal(i)
		}
		f.Abandon()
	})
}

package rpc

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// slowWork answers gets, and does not get done with those of a key that begins with "slow" before
// the gate opens.
type slowWork struct {
	t     *testing.T
	batch []*kvpb.Request
	reply func(*kvpb.Response)
	gate  <-chan struct{}
	begun atomic.Int32
	// running and done show that Done comes last, and once.
	running, done atomic.Int32
	finished      *atomic.Int32
}

func (w *slowWork) Run() {
	w.running.Add(1)
	defer w.running.Add(-1)
	for {
		i := int(w.begun.Add(1)) - 1
		if i >= len(w.batch) {
			return
		}
		q := w.batch[i]
		key := string(q.GetGet().Key)
		if len(key) > 4 && key[:4] == "slow" {
			<-w.gate
		}
		echoAll(0, []*kvpb.Request{q}, w.reply)
	}
}

func (w *slowWork) Done() {
	if w.running.Load() != 0 || w.done.Add(1) != 1 {
		w.t.Error("Done is called while a goroutine runs the work, or again")
	}
	w.finished.Add(1)
}

// slowServer serves slowWork, and returns the keys in the order in which they are taken, and how
// many works are not done.
func slowServer(t *testing.T, n network,
	gate <-chan struct{}) (taken func() []string, open func() int) {
	var mu sync.Mutex
	var keys []string
	var works int
	var finished atomic.Int32
	serveBatch(t, n, "s:1", BatchServerConfig{Take: func(_ uint64, batch []*kvpb.Request,
		reply func(*kvpb.Response)) Work {
		mu.Lock()
		defer mu.Unlock()
		works++
		for _, q := range batch {
			keys = append(keys, string(q.GetGet().Key))
		}
		return &slowWork{t: t, batch: append([]*kvpb.Request(nil), batch...), reply: reply,
			gate: gate, finished: &finished}
	}})
	return func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), keys...) },
		func() int { mu.Lock(); defer mu.Unlock(); return works - int(finished.Load()) }
}

// The answers to a message of few requests wait for each other, but not for one that takes long.
func TestSlowWorkDoesNotKeepAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		gate := make(chan struct{})
		slowServer(t, n, gate)
		stream, end := openConn(t, n.dialer(t, "c"), "s:1")
		defer end()
		m := &kvpb.BatchRequest{Hello: hello(1, 1)}
		for i, key := range []string{"a", "slow 1", "b"} {
			r := get(key)
			r.Id = uint64(i + 1)
			m.Requests = append(m.Requests, r)
		}
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		got := 0
		receive := func() {
			t.Helper()
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range m.Responses {
				got += 1 << r.Id
			}
		}
		for got != 0b1010 {
			receive()
		}
		close(gate)
		receive()
		if got != 0b1110 {
			t.Fatalf("answers %b", got)
		}
	})
}

// A request whose work takes long holds up neither the others of its message nor the messages
// behind it.
func TestSlowWorkHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		gate := make(chan struct{})
		taken, open := slowServer(t, n, gate)
		stream, end := openConn(t, n.dialer(t, "c"), "s:1")
		defer end()
		send := func(h *kvpb.Hello, ids []uint64, keys ...string) {
			t.Helper()
			m := &kvpb.BatchRequest{Hello: h}
			for i, key := range keys {
				r := get(key)
				r.Id = ids[i]
				m.Requests = append(m.Requests, r)
			}
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		receive := func(want ...uint64) {
			t.Helper()
			missing := make(map[uint64]bool)
			for _, id := range want {
				missing[id] = true
			}
			for len(missing) > 0 {
				m, err := stream.Recv()
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range m.Responses {
					if !missing[r.Id] {
						t.Fatalf("an answer to %d, while %v are waited for", r.Id, missing)
					}
					delete(missing, r.Id)
				}
			}
		}
		send(hello(1, 1), []uint64{1, 2, 3, 4}, "a", "slow 1", "b", "c")
		send(nil, []uint64{5}, "d")
		receive(1, 3, 4, 5)
		// Several of them, in one message and in the next.
		send(nil, []uint64{6, 7, 8}, "slow 2", "slow 3", "e")
		send(nil, []uint64{9}, "slow 4")
		send(nil, []uint64{10}, "f")
		receive(8, 10)
		if open() != 3 {
			t.Errorf("%d works are not done", open())
		}
		close(gate)
		receive(2, 6, 7, 9)
		synctest.Wait()
		if open() != 0 {
			t.Errorf("%d works are not done", open())
		}
		if got := fmt.Sprint(taken()); got != "[a slow 1 b c d slow 2 slow 3 e slow 4 f]" {
			t.Errorf("taken in the order %s", got)
		}
	})
}

// With too many slow ones the stream waits, and goes on when they are done.
func TestHandoffIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		gate := make(chan struct{})
		taken, open := slowServer(t, n, gate)
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		var callers sync.WaitGroup
		for i := range maxStolen + 3 {
			callers.Go(func() {
				if _, err := conn.Do(t.Context(), get(fmt.Sprintf("slow %d", i))); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(5 * handoffAfter)
		}
		if n := len(taken()); n != maxStolen+1 {
			t.Errorf("%d are at work, want %d", n, maxStolen+1)
		}
		close(gate)
		callers.Wait()
		synctest.Wait()
		if open() != 0 {
			t.Errorf("%d works are not done", open())
		}
	})
}

// A stream that ends while there is slow work ends for its client at once, and for the server when
// that is done.
func TestStreamEndsWithSlowWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		gate := make(chan struct{})
		_, open := slowServer(t, n, gate)
		conn := batchConn(t, n.dialer(t, "c"), "s:1", nil)
		gone := make(chan error)
		go func() { _, err := conn.Do(t.Context(), get("slow one")); gone <- err }()
		time.Sleep(5 * handoffAfter)
		conn.Close()
		if err := <-gone; err == nil {
			t.Error("a request on a closed connection has an answer")
		}
		again := batchConn(t, n.dialer(t, "d"), "s:1", func(c *client.BatchConfig) { c.Client = 8 })
		if _, err := again.Do(t.Context(), get("quick")); err != nil {
			t.Error(err)
		}
		close(gate)
		synctest.Wait()
		if open() != 0 {
			t.Errorf("%d works are not done", open())
		}
	})
}

// While the requests of a large message are worked on, the next message is read and answered, in no
// time, and messages are taken in their order. One of its requests that takes long holds up no
// other.
func TestNextIsReadBesideManyRequests(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("one processor does one thing at a time")
	}
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		gate := make(chan struct{})
		taken, open := slowServer(t, n, gate)
		stream, end := openConn(t, n.dialer(t, "c"), "s:1")
		defer end()
		id, want := uint64(0), []string(nil)
		send := func(m *kvpb.BatchRequest, keys ...string) {
			t.Helper()
			for _, key := range keys {
				id++
				r := get(key)
				r.Id = id
				m.Requests = append(m.Requests, r)
				want = append(want, key)
			}
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		many := []string{"slow 1"}
		for i := range manyRequests - 1 {
			many = append(many, fmt.Sprint(i))
		}
		began := time.Now()
		send(&kvpb.BatchRequest{Hello: hello(1, 1)}, many...)
		send(&kvpb.BatchRequest{}, "next")
		m, err := stream.Recv()
		if err != nil || len(m.Responses) != 1 || m.Responses[0].Id != id {
			t.Fatalf("answers %v: %v", m, err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the next message waited for %s", took)
		}
		// The others of the large message do not wait for the slow one either.
		for got := 0; got < manyRequests-1; {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got += len(m.Responses)
		}
		if took := time.Since(began); took > 4*handoffAfter {
			t.Errorf("the others of a large message waited for %s", took)
		}
		close(gate)
		if m, err := stream.Recv(); err != nil || len(m.Responses) != 1 || m.Responses[0].Id != 1 {
			t.Fatalf("answers %v: %v", m, err)
		}
		if synctest.Wait(); open() != 0 {
			t.Errorf("%d works are not done", open())
		}
		if got := taken(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("taken: %v, want %v", got, want)
		}
	})
}

package admit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission/workqueue"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// fakeServer notes what begins, and answers when it is told.
type fakeServer struct {
	mu    sync.Mutex
	begun []config.Pending
	// at is told of each request that begins, if it is set.
	at func(config.Pending)
}

func (s *fakeServer) Begin(_ uint64, requests []config.Pending) rpc.Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = append(s.begun, requests...)
	if s.at != nil {
		for _, p := range requests {
			s.at(p)
		}
	}
	return nil
}

func (s *fakeServer) Refuse(q *kvpb.Request, e *kvpb.Error, reply func(*kvpb.Response)) {
	reply(&kvpb.Response{Id: q.Id, Error: e})
}

func (s *fakeServer) KeyspaceOf(partition uint64) uint64 { return partition / 100 }

func (s *fakeServer) ids() (out []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.begun {
		out = append(out, p.Request.Id)
	}
	return out
}

func put(id uint64) *kvpb.Request {
	return &kvpb.Request{Id: id, Partition: 101, Term: 1, Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{
		Key: []byte("k")}}}
}

// world is a gate with a queue of which one request is at work at a time, and a fake server.
type world struct {
	gate   *Gate
	server fakeServer
	short  bool
	user   string
	end    func()
}

func newWorld(t *testing.T, c workqueue.Config) *world {
	w := &world{short: true}
	if c.Short == nil {
		c.Short = func() bool { return w.short }
	}
	w.gate = New(Config{Node: 1, Server: &w.server,
		Client: func(uint64) (address, user string) { return "", w.user }, Queue: c, Metrics: NewMetrics(hosted.NewMetrics(nil))})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.gate.Run(ctx) })
	w.end = func() {
		cancel()
		running.Wait()
	}
	return w
}

// enter has a message of a client come, and begins what begins at once as a node does.
func (w *world) enter(client uint64, reply func(*kvpb.Response), batch ...*kvpb.Request) {
	now := time.Now()
	rest, counted := w.gate.Enter(client, batch, reply, now)
	for _, q := range rest {
		w.server.Begin(client, []config.Pending{{Client: client, Request: q, Reply: counted,
			Arrived: now}})
	}
}

func ignore(*kvpb.Response) {}

// TestRetryStaysBehind: an attempt that waits begins before its retry, although the client is known
// by another user meanwhile.
func TestRetryStaysBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, workqueue.Config{Least: 1, Most: 1})
		defer w.end()
		w.enter(1, ignore, put(1))
		w.user = "alice"
		w.enter(7, ignore, put(10))
		// Bob would have the first turn: Alice was given more.
		w.gate.queue.Charge(w.gate.queueShare(t), time.Second, time.Second)
		w.user = "bob"
		w.enter(7, ignore, put(11))
		synctest.Wait()
		for range 2 {
			w.server.answer(len(w.server.ids()) - 1)
			synctest.Wait()
		}
		if got := fmt.Sprint(w.server.ids()); got != "[1 10 11]" {
			t.Errorf("began: %s", got)
		}
	})
}

// queueShare takes the one request out of the queue that waits, puts it back, and returns its
// share.
func (g *Gate) queueShare(t *testing.T) *workqueue.Share {
	now := time.Now()
	g.queue.Leave(0, 1)
	items := g.queue.Take(1, now)
	if len(items) != 1 {
		t.Fatal("nothing waits")
	}
	g.queue.Taken(1)
	r := items[0].Request
	if err := g.queue.Add(r, workqueue.Tenant{User: "alice", Keyspace: 1}, r.priority, 0,
		now); err != nil {
		t.Fatal(err)
	}
	return items[0].Share
}

// answer answers the request that was the i-th to begin.
func (s *fakeServer) answer(i int) {
	s.mu.Lock()
	p := s.begun[i]
	s.mu.Unlock()
	p.Reply(&kvpb.Response{Id: p.Request.Id})
}

// TestWhatEndsLocksDoesNotWait, nor do readers of changes count.
func TestWhatEndsLocksDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, workqueue.Config{Least: 1, Most: 1})
		defer w.end()
		w.enter(1, ignore, &kvpb.Request{Id: 1, Command: &kvpb.Request_Changes{
			Changes: &kvpb.ChangesRequest{}}})
		synctest.Wait()
		if f := w.gate.queue.Figures(); f.Working != 0 {
			t.Errorf("%+v with a reader of changes", f)
		}
		w.enter(1, ignore, put(2))
		w.enter(1, ignore, put(3), &kvpb.Request{Id: 4, Command: &kvpb.Request_Resolve{
			Resolve: &kvpb.ResolveRequest{}}}, &kvpb.Request{Id: 5,
			Command: &kvpb.Request_EndTransaction{EndTransaction: &kvpb.EndTransactionRequest{}}})
		synctest.Wait()
		if got := fmt.Sprint(w.server.ids()); got != "[1 2 4 5]" {
			t.Errorf("began: %s", got)
		}
	})
}

// TestExpired: a request whose caller has stopped waiting does not begin, and is answered so.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, workqueue.Config{Least: 1, Most: 1})
		defer w.end()
		w.enter(1, ignore, put(1))
		late := put(2)
		late.TimeoutMicros = 5000
		var answer *kvpb.Response
		w.enter(1, func(r *kvpb.Response) { answer = r }, late)
		time.Sleep(10 * time.Millisecond)
		w.server.answer(0)
		synctest.Wait()
		if answer.GetError().GetCode() != kvpb.ErrorCode_OVERLOADED {
			t.Errorf("answered %v", answer)
		}
		if f := w.gate.queue.Figures(); f.Working != 0 || len(w.gate.mu.clients) > 0 {
			t.Errorf("%+v, clients %v", f, w.gate.mu.clients)
		}
	})
}

// TestExpiredTakeNoTurns: requests whose callers have stopped waiting are answered at once, and not
// when their turn has come: while others wait, a request of low priority has few turns.
func TestExpiredTakeNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, workqueue.Config{Least: 1, Most: 1})
		defer w.end()
		w.enter(1, ignore, put(1))
		answered := 0
		for id := range uint64(3) {
			late := put(2 + id)
			late.TimeoutMicros, late.Priority = 100_000, kvpb.Priority_PRIORITY_LOW
			w.enter(1, func(r *kvpb.Response) {
				if answered++; r.GetError().GetCode() != kvpb.ErrorCode_OVERLOADED {
					t.Errorf("answered %v", r)
				}
			}, late)
		}
		for i := range 16 { // two come for each that is answered
			w.enter(1, ignore, put(uint64(10+2*i)), put(uint64(11+2*i)))
			time.Sleep(10 * time.Millisecond)
			w.server.answer(i)
			synctest.Wait()
		}
		if answered != 3 {
			t.Errorf("%d of 3 requests are answered", answered)
		}
	})
}

// TestSearchesDoNotWait: a write of term 0 looks for the leader, and others wait for what it finds.
// Blocks of loads wait as other writes do.
func TestSearchesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, workqueue.Config{Least: 1, Most: 1})
		defer w.end()
		search := put(2)
		search.Term = 0
		load := &kvpb.Request{Id: 3, Partition: 101, Term: 1, Background: true,
			Command: &kvpb.Request_Load{Load: &kvpb.LoadRequest{}}}
		w.enter(1, ignore, put(1))
		w.enter(1, ignore, search, load)
		synctest.Wait()
		if got := fmt.Sprint(w.server.ids()); got != "[1 2]" {
			t.Errorf("began: %s", got)
		}
		if f := w.gate.queue.Figures(); f.Waiting[workqueue.Low] != 1 {
			t.Errorf("%+v", f)
		}
	})
}

// TestLowHasHalf: requests of low priority begin without waiting only if half of the limit is free.
func TestLowHasHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, workqueue.Config{Least: 4, Most: 4})
		defer w.end()
		for id := range uint64(4) {
			q := put(1 + id)
			q.Priority = kvpb.Priority_PRIORITY_LOW
			w.enter(1, ignore, q)
		}
		synctest.Wait()
		if got := fmt.Sprint(w.server.ids()); got != "[1 2]" {
			t.Errorf("began: %s", got)
		}
	})
}

// TestRefusalSaysWhen: who has too much in the queue is refused, and told after which time to try
// again.
func TestRefusalSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, workqueue.Config{Least: 1, Most: 1, Longest: 10 * time.Millisecond})
		defer w.end()
		w.enter(1, ignore, put(1))
		w.enter(1, ignore, put(2))
		time.Sleep(15 * time.Millisecond)
		var answer *kvpb.Response
		w.enter(1, func(r *kvpb.Response) { answer = r }, put(3))
		e := answer.GetError()
		if e.GetCode() != kvpb.ErrorCode_OVERLOADED || e.GetRetryAfterMicros() != 15_000 {
			t.Errorf("answered %v", answer)
		}
	})
}

// TestEachIsAnsweredOnce: whatever comes, each request is answered once, at the latest when the
// gate ends; those of a client, keyspace and priority begin in their order; and nothing is counted
// any more at the end.
func TestEachIsAnsweredOnce(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { eachIsAnsweredOnce(t, seed) })
	}
}

func eachIsAnsweredOnce(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex // of random, and of what follows
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	type flow struct {
		client, keyspace uint64
		priority         workqueue.Priority
	}
	last := map[flow]uint64{}
	answers := map[uint64]int{}
	w := newWorld(t, workqueue.Config{Least: 1, Most: 1 + random.IntN(4), MaxWaiting: 40,
		Short: func() bool { return draw(2) == 0 }})
	var serving sync.WaitGroup
	w.server.at = func(p config.Pending) {
		f := flow{p.Client, p.Request.Partition / 100, priorityOf(p.Request)}
		mu.Lock()
		if p.Request.GetPut() != nil {
			if last[f] > p.Request.Id {
				t.Errorf("%d begins after %d", p.Request.Id, last[f])
			}
			last[f] = p.Request.Id
		}
		mu.Unlock()
		took := time.Duration(draw(20)) * time.Millisecond
		serving.Go(func() {
			time.Sleep(took)
			p.Timing = timing.Start(p.Arrived)
			w.gate.Answered(&p)
			p.Reply(&kvpb.Response{Id: p.Request.Id})
		})
	}
	id := uint64(0)
	for range 200 {
		time.Sleep(time.Duration(draw(10)) * time.Millisecond)
		batch := make([]*kvpb.Request, 1+draw(5))
		for i := range batch {
			id++
			q := put(id)
			q.Partition = uint64(100 * (1 + draw(2)))
			q.Priority = kvpb.Priority(draw(3))
			if draw(3) == 0 {
				q.TimeoutMicros = uint64(1 + draw(30_000))
			}
			switch draw(10) {
			case 0:
				q.Command = &kvpb.Request_Changes{Changes: &kvpb.ChangesRequest{}}
			case 1:
				q.Command = &kvpb.Request_Push{Push: &kvpb.PushRequest{}}
			}
			batch[i] = q
		}
		w.enter(uint64(1+draw(3)), func(r *kvpb.Response) {
			mu.Lock()
			defer mu.Unlock()
			answers[r.Id]++
		}, batch...)
	}
	w.end()
	serving.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i := range id {
		if answers[i+1] != 1 {
			t.Errorf("seed %d: request %d was answered %d times", seed, i+1, answers[i+1])
		}
	}
	if f := w.gate.queue.Figures(); f.Working != 0 || f.Total() != 0 || len(w.gate.mu.clients) > 0 {
		t.Errorf("seed %d: %+v, clients %v", seed, f, w.gate.mu.clients)
	}
}

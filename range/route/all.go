package route

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// How several calls are made together.
//
// The requests of all calls whose partition has a known leader are handed to the connections by the caller's goroutine, node by node, so
// that those for one node leave in one message, are taken by it in one go, and mostly are answered in one; small reads even in one request
// (multi_get.go). What comes then is for each call by itself: it lands when its own answer does, whatever the others wait for. A call that needs more than its first attempt goes on
// in a goroutine of its own, as Do would; so does one that cannot be handed over without a wait.

// DoAll is Do for several calls, at most limit of them at a time. landed is called once for each call, as they end, by the caller's goroutine.
// An error that it returns is what DoAll returns: it ends the other calls, whose landed is not called any more.
func (s *Sender) DoAll(ctx context.Context, limit int, calls []*Call, landed func(i int, answer Answer, err error) error) error {
	if len(calls) == 0 {
		return nil
	}
	if len(calls) == 1 {
		answer, err := s.Do(ctx, calls[0])
		return landed(0, answer, err)
	}
	t := together{sender: s, ctx: ctx, calls: calls, landed: landed, flight: rpc.NewCalls(len(calls)), aloft: make([]aloft, len(calls))}
	t.boarding, t.numbers, t.requests = t.few.boarding[:0], t.few.numbers[:0], t.few.requests[:0]
	defer t.end()
	return t.run(limit)
}

// together is several calls that are made together. It is its caller's goroutine's, but for what the calls that are alone do.
type together struct {
	sender *Sender
	ctx    context.Context
	calls  []*Call
	landed func(i int, answer Answer, err error) error

	flight *rpc.Calls
	aloft  []aloft
	// boarding are the calls that are about to be handed over, by lane; numbers and requests are those of one of them, meanwhile.
	boarding []boarding
	numbers  []int
	requests []*kvpb.Request
	// few is room for these if they are few.
	few struct {
		boarding [4]boarding
		numbers  [8]int
		requests [8]*kvpb.Request
	}
	// yielded: whoever brings other answers was let go first.
	yielded bool
	// alone gets the results of the calls that go on by themselves, in aloneCtx; made with the first.
	alone      chan result
	aloneCtx   context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
}

// aloft is the first attempt of one call.
type aloft struct {
	attempt
	partition *Partition
	leader    *leader
	// next is the call that boards its lane next; -1: none.
	next int
	// waits: it has been handed over, and has not landed.
	waits bool
	awaited
	// shared: its request is that of all that have boarded from it on, of which it alone waits.
	shared bool
	// rows are the call's in the answer to a shared request.
	rows []rpc.Row
}

// boarding is what is about to be handed over to one lane: a list of calls.
type boarding struct {
	lane        *lane
	first, last int
}

type result struct {
	number int
	answer Answer
	err    error
}

// run makes all calls.
func (t *together) run(limit int) error {
	next, under := 0, 0
	for ended := 0; ended < len(t.calls); {
		for ; next < len(t.calls) && under < limit; next++ {
			under++
			over, err := t.board(next)
			if err != nil {
				return err
			}
			if over {
				ended, under = ended+1, under-1
			}
		}
		t.depart()
		if under == 0 {
			continue
		}
		over, err := t.await()
		if err != nil {
			return err
		}
		ended, under = ended+over, under-over
	}
	return nil
}

// board prepares the first attempt of a call. over says that the call has ended.
func (t *together) board(i int) (over bool, err error) {
	x := &t.aloft[i]
	x.attempt = t.sender.attempt(t.ctx, t.calls[i])
	if err := t.ctx.Err(); err != nil {
		return true, t.landed(i, Answer{}, &Error{Cause: err, Message: "the request was not sent"})
	}
	p, err := x.lookUp()
	if err != nil {
		t.goOn(i, nil)
		return false, nil
	}
	l := p.cell.leader.Load()
	if !l.usable() || (l.term == 0 && !x.call.Write) {
		t.goOn(i, nil)
		return false, nil
	}
	x.at, x.partition, x.leader = p, p, l
	if _, err := x.request(p, l); err != nil {
		return true, t.landed(i, Answer{}, err)
	}
	to := l.node.lanes[x.lane]
	at := slices.IndexFunc(t.boarding, func(b boarding) bool { return b.lane.node == to.node })
	x.next = -1
	if at < 0 {
		t.boarding = append(t.boarding, boarding{lane: to, first: i, last: i})
		return false, nil
	}
	b := &t.boarding[at]
	x.lane = b.lane.index // all that go to one node go in one lane, and stay in it
	t.aloft[b.last].next = i
	b.last = i
	return false, nil
}

// depart hands over what has boarded.
func (t *together) depart() {
	for i := range t.boarding {
		b := &t.boarding[i]
		t.numbers, t.requests = t.numbers[:0], t.requests[:0]
		if r := t.share(b.first); r != nil {
			t.aloft[b.first].shared = true
			t.numbers, t.requests = append(t.numbers, b.first), append(t.requests, r)
		} else {
			for i := b.first; i >= 0; i = t.aloft[i].next {
				t.numbers, t.requests = append(t.numbers, i), append(t.requests, t.calls[i].Request)
			}
		}
		for _, i := range t.numbers {
			t.aloft[i].awaited, t.aloft[i].waits = b.lane.await(), true
		}
		taken := 0
		if c, err := b.lane.stream(); err == nil {
			taken, _ = c.Submit(t.flight, t.numbers, t.requests) // what was not taken was not sent
		}
		for _, i := range t.numbers[taken:] {
			t.aloft[i].tick.Add(-1)
			t.aloft[i].waits = false
			t.stay(i)
		}
	}
	t.boarding = t.boarding[:0]
}

// stay has the calls of a request that was not taken go on by themselves.
func (t *together) stay(i int) {
	for shared := t.aloft[i].shared; i >= 0; i = t.aloft[i].next {
		t.aloft[i].sent-- // it was no attempt
		t.goOn(i, nil)
		if !shared {
			return
		}
	}
}

// await waits until calls end, and counts them.
func (t *together) await() (over int, err error) {
	select {
	case i := <-t.flight.Done():
		if !t.yielded {
			// Mostly the others have come by then, and to be woken for each would cost more than to come later.
			t.yielded = true
			runtime.Gosched()
		}
		return t.touchDown(i)
	case r := <-t.alone:
		return 1, t.landed(r.number, r.answer, r.err)
	case <-t.ctx.Done():
	}
	// Those that go on by themselves see for themselves that it is over. What has landed has landed.
	select {
	case i := <-t.flight.Done():
		return t.touchDown(i)
	default:
	}
	t.flight.Abandon()
	for i := range t.aloft {
		x := &t.aloft[i]
		if !x.waits {
			continue
		}
		x.waits = false
		_, err := x.leader.node.lanes[x.lane].came(x.awaited, nil, t.ctx.Err())
		ended, err := t.land(i, nil, err)
		if over += ended; err != nil {
			return over, err
		}
	}
	if over > 0 {
		return over, nil
	}
	r := <-t.alone
	return 1, t.landed(r.number, r.answer, r.err)
}

// touchDown takes in what came of a request.
func (t *together) touchDown(i int) (over int, err error) {
	x := &t.aloft[i]
	if !x.waits {
		return 0, nil // it was given up just before
	}
	x.waits = false
	response, err := t.flight.Outcome(i)
	response, err = x.leader.node.lanes[x.lane].came(x.awaited, response, err)
	return t.land(i, response, err)
}

// land takes in what came of a request.
func (t *together) land(i int, response *kvpb.Response, err error) (over int, _ error) {
	if t.aloft[i].shared {
		return t.landShared(i, response, err)
	}
	return t.conclude(i, response, err)
}

// conclude takes in what came of a call's first attempt.
func (t *together) conclude(i int, response *kvpb.Response, err error) (over int, _ error) {
	x := &t.aloft[i]
	answer, err, again := x.arrived(t.ctx, x.partition, x.leader, false, response, err)
	if again != nil {
		t.goOn(i, again)
		return 0, nil
	}
	return 1, t.landed(i, answer, err)
}

// goOn has a call go on by itself, with its next attempt after a wait; nil: at once.
func (t *together) goOn(i int, after *Backoff) {
	if t.alone == nil {
		t.alone = make(chan result, len(t.calls))
		t.aloneCtx, t.cancel = context.WithCancel(t.ctx)
	}
	a := &t.aloft[i].attempt
	t.goroutines.Go(func() {
		r := result{number: i}
		if after != nil {
			r.err = a.wait(t.aloneCtx, *after)
		}
		if r.err == nil {
			r.answer, r.err = a.run(t.aloneCtx)
		}
		t.alone <- r
	})
}

// end gives up what is under way.
func (t *together) end() {
	t.flight.Abandon()
	for i := range t.aloft {
		if x := &t.aloft[i]; x.waits {
			x.waits = false
			x.tick.Add(-1)
		}
	}
	if t.cancel != nil {
		t.cancel()
		t.goroutines.Wait()
	}
}

package route

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// How several calls are made together.
//
// The requests of all calls whose partition has a known leader are submitted to the connections by
// the caller's goroutine, node by node, so that those for one node leave in one message, are taken
// by it in one go, and mostly are answered in one; small reads even in one request (multi_get.go).
// What comes then is for each call by itself: it ends when its own answer comes, whatever the
// others wait for. A call that needs more than its first attempt goes on in a goroutine of its own,
// as Do would; so does one that cannot be submitted without a wait.

// DoAll is Do for several calls, at most limit of them at a time. done is called once for each
// call, as they end, by the caller's goroutine. An error that it returns is what DoAll returns: it
// ends the other calls, whose done is not called any more.
func (s *Sender) DoAll(ctx context.Context, limit int, calls []*Call,
	done func(i int, answer Answer, err error) error) error {
	if len(calls) == 0 {
		return nil
	}
	if len(calls) == 1 {
		answer, err := s.Do(ctx, calls[0])
		return done(0, answer, err)
	}
	if s.cfg.Tracer != nil || s.metrics.kinds != nil {
		var o observed
		var failed error
		ctx, o = s.observe(ctx, calls[0].Request, len(calls))
		defer func() { o.end(failed) }()
		tell := done
		done = func(i int, answer Answer, err error) error {
			if err != nil {
				failed = err
			}
			return tell(i, answer, err)
		}
	}
	t := multiCall{sender: s, ctx: ctx, calls: calls, done: done,
		outstanding: client.NewCalls(len(calls)), attempts: make([]firstAttempt, len(calls))}
	t.gathered, t.numbers, t.requests = t.few.gathered[:0], t.few.numbers[:0], t.few.requests[:0]
	defer t.end()
	return t.run(limit)
}

// multiCall is several calls that are made together. It is its caller's goroutine's, but for what
// the calls that are alone do.
type multiCall struct {
	sender *Sender
	ctx    context.Context
	calls  []*Call
	done   func(i int, answer Answer, err error) error

	outstanding *client.Calls
	attempts    []firstAttempt
	// gathered are the calls that are about to be submitted, by lane; numbers and requests are
	// those of one of them, meanwhile.
	gathered []gathered
	numbers  []int
	requests []*kvpb.Request
	// few is room for these if they are few.
	few struct {
		gathered [4]gathered
		numbers  [8]int
		requests [8]*kvpb.Request
	}
	// yielded: the goroutines that bring other answers went first.
	yielded bool
	// alone gets the results of the calls that go on by themselves, in aloneCtx; made with the first.
	alone      chan result
	aloneCtx   context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
}

// firstAttempt is the first attempt of one call.
type firstAttempt struct {
	attempt
	partition *Partition
	leader    *table.Hint
	// next is the call that was gathered for its lane next; -1: none.
	next int
	// pending: it has been submitted, and has not ended.
	pending bool
	nodes.Awaited
	// shared: its request is that of all that were gathered from it on, of which it alone waits.
	shared bool
	// rows are the call's in the answer to a shared request.
	rows []wire.Row
}

// gathered is what is about to be submitted to one lane: a list of calls.
type gathered struct {
	lane        *nodes.Lane
	first, last int
}

type result struct {
	number int
	answer Answer
	err    error
}

// run makes all calls.
func (t *multiCall) run(limit int) error {
	next, under := 0, 0
	for ended := 0; ended < len(t.calls); {
		for ; next < len(t.calls) && under < limit; next++ {
			under++
			over, err := t.gather(next)
			if err != nil {
				return err
			}
			if over {
				ended, under = ended+1, under-1
			}
		}
		t.sendGathered()
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

// gather prepares the first attempt of a call. over says that the call has ended.
func (t *multiCall) gather(i int) (over bool, err error) {
	x := &t.attempts[i]
	x.attempt = t.sender.attempt(t.ctx, t.calls[i])
	if err := t.ctx.Err(); err != nil {
		return true, t.done(i, Answer{}, notSent(err, x.maybe))
	}
	p, err := x.lookUp()
	if err != nil {
		t.goOn(i, nil)
		return false, nil
	}
	l := p.Hints.Current()
	if !l.Usable() || (l.Term == 0 && !x.call.Write) {
		t.goOn(i, nil)
		return false, nil
	}
	x.at, x.partition, x.leader = p, p, l
	if _, err := x.request(p, l); err != nil {
		return true, t.done(i, Answer{}, err)
	}
	to := l.Node.Lanes[x.lane]
	at := slices.IndexFunc(t.gathered, func(b gathered) bool { return b.lane.Node == to.Node })
	x.next = -1
	if at < 0 {
		t.gathered = append(t.gathered, gathered{lane: to, first: i, last: i})
		return false, nil
	}
	b := &t.gathered[at]
	x.lane = b.lane.Index // all that go to one node go in one lane, and stay in it
	t.attempts[b.last].next = i
	b.last = i
	return false, nil
}

// sendGathered submits what was gathered.
func (t *multiCall) sendGathered() {
	for i := range t.gathered {
		b := &t.gathered[i]
		t.numbers, t.requests = t.numbers[:0], t.requests[:0]
		if r := t.share(b.first); r != nil {
			t.attempts[b.first].shared = true
			t.numbers, t.requests = append(t.numbers, b.first), append(t.requests, r)
		} else {
			for i := b.first; i >= 0; i = t.attempts[i].next {
				t.numbers, t.requests = append(t.numbers, i), append(t.requests, t.calls[i].Request)
			}
		}
		for k, i := range t.numbers {
			t.attempts[i].Awaited = b.lane.Await(t.ctx, t.requests[k])
			t.attempts[i].pending = true
		}
		taken := 0
		if c, err := b.lane.Stream(); err == nil {
			taken, _ = c.Submit(t.outstanding, t.numbers, t.requests) // what was not taken was not sent
		}
		for _, i := range t.numbers[taken:] {
			t.attempts[i].Abandon()
			t.attempts[i].pending = false
			t.notTaken(i)
		}
	}
	t.gathered = t.gathered[:0]
}

// notTaken has the calls of a request that was not taken go on by themselves.
func (t *multiCall) notTaken(i int) {
	for shared := t.attempts[i].shared; i >= 0; i = t.attempts[i].next {
		t.attempts[i].sent-- // it was no attempt
		t.goOn(i, nil)
		if !shared {
			return
		}
	}
}

// await waits until calls end, and counts them.
func (t *multiCall) await() (over int, err error) {
	select {
	case i := <-t.outstanding.Done():
		if !t.yielded {
			// Mostly the others have come by then, and to be woken for each would cost more than to
			// come later.
			t.yielded = true
			runtime.Gosched()
		}
		return t.ended(i)
	case r := <-t.alone:
		return 1, t.done(r.number, r.answer, r.err)
	case <-t.ctx.Done():
	}
	// Those that go on by themselves see for themselves that it is over. What has done has done.
	select {
	case i := <-t.outstanding.Done():
		return t.ended(i)
	default:
	}
	t.outstanding.Abandon()
	for i := range t.attempts {
		x := &t.attempts[i]
		if !x.pending {
			continue
		}
		x.pending = false
		_, err := x.leader.Node.Lanes[x.lane].Received(x.Awaited, nil, t.ctx.Err())
		ended, err := t.take(i, nil, err)
		if over += ended; err != nil {
			return over, err
		}
	}
	if over > 0 {
		return over, nil
	}
	r := <-t.alone
	return 1, t.done(r.number, r.answer, r.err)
}

// ended takes in what came of a request.
func (t *multiCall) ended(i int) (over int, err error) {
	x := &t.attempts[i]
	if !x.pending {
		return 0, nil // it was given up just before
	}
	x.pending = false
	response, err := t.outstanding.Outcome(i)
	response, err = x.leader.Node.Lanes[x.lane].Received(x.Awaited, response, err)
	return t.take(i, response, err)
}

// take takes in what came of a request.
func (t *multiCall) take(i int, response *kvpb.Response, err error) (over int, _ error) {
	if t.attempts[i].shared {
		return t.takeShared(i, response, err)
	}
	return t.conclude(i, response, err)
}

// conclude takes in what came of a call's first attempt.
func (t *multiCall) conclude(i int, response *kvpb.Response, err error) (over int, _ error) {
	x := &t.attempts[i]
	answer, err, again := x.arrived(t.ctx, x.partition, x.leader, false, response, err)
	if again != nil {
		t.goOn(i, again)
		return 0, nil
	}
	return 1, t.done(i, answer, err)
}

// goOn has a call go on by itself, with its next attempt after a wait; nil: at once.
func (t *multiCall) goOn(i int, after *backoff.Backoff) {
	if t.alone == nil {
		t.alone = make(chan result, len(t.calls))
		t.aloneCtx, t.cancel = context.WithCancel(t.ctx)
	}
	a := &t.attempts[i].attempt
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
func (t *multiCall) end() {
	t.outstanding.Abandon()
	for i := range t.attempts {
		if x := &t.attempts[i]; x.pending {
			x.pending = false
			x.Abandon()
		}
	}
	if t.cancel != nil {
		t.cancel()
		t.goroutines.Wait()
	}
}

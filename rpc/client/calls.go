package client

import (
	"errors"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Calls holds requests of one caller that are in flight at the same time, to any nodes. Requests to
// one node travel in one message, but are otherwise independent: each ends when its own answer
// comes. One goroutine waits for all of them; with Do there would be a goroutine for each, and the
// requests would be sent one by one.
//
// The requests are numbered from 0. Calls are for one goroutine; end them with Abandon.
type Calls struct {
	all []call
	// done has capacity for all calls, so that the goroutine that brings an outcome never waits.
	done chan int
}

// NewCalls returns Calls for n requests.
func NewCalls(n int) *Calls {
	c := &Calls{all: make([]call, n), done: make(chan int, n)}
	for i := range c.all {
		c.all[i].done, c.all[i].number = c.done, i
	}
	return c
}

// Done receives the number of each request whose outcome has come, once.
func (c *Calls) Done() <-chan int { return c.done }

// Outcome returns the result of a request that has ended, like Do. The response belongs to the
// caller.
func (c *Calls) Outcome(number int) (*kvpb.Response, error) {
	one := &c.all[number]
	return one.response, one.err
}

// Abandon gives up the requests that have not ended. They may have been sent, and may still take
// effect. It may be called again.
func (c *Calls) Abandon() {
	for i := range c.all {
		if one := &c.all[i]; one.stream != nil {
			_, _ = one.stream.abandon(one)
			one.stream = nil
		}
	}
}

// Submit sends requests to the node, all in one message if nothing else is on its way there. It
// does not wait: it stops at a request that cannot be taken at once, because there is no room for
// it or because it is large; use Do for that one. It returns how many requests it took, the first
// ones of numbers. requests[i] gets the number numbers[i], each of which may be submitted once; the
// request must not be changed before it has ended, and is not kept.
//
// An error other than ErrClosed, of the stream or of one request, is the outcome of a request that
// was taken.
func (b *BatchConn) Submit(c *Calls, numbers []int, requests []*kvpb.Request) (int, error) {
	s, err := b.stream()
	if errors.Is(err, ErrClosed) {
		return 0, err
	}
	if err != nil {
		return 0, nil // Do returns the reason
	}
	taken := 0
	s.out.Lock()
	for i, r := range requests {
		r.Id = 0
		size := r.SizeVT()
		if size >= outbox.LargeRecord || s.broken.Load() || !s.hasRoomLocked(size) {
			break
		}
		one := &c.all[numbers[i]]
		one.stream = s
		s.enterLocked(one)
		r.Id = one.id
		chunk, err := s.out.AddLocked(tagRequests, r, size+1+wire.VarintSize(one.id))
		if err != nil {
			// The stream has just ended, or the request cannot be marshalled: Do will return the
			// error.
			s.leaveLocked(one.id)
			one.stream = nil
			break
		}
		one.chunk = chunk
		taken++
	}
	s.out.UnlockAndSend(taken > 0 && (s.inFlight-taken < directCallers || s.out.QuietLocked()))
	return taken, nil
}

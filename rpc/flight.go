package rpc

import (
	"errors"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Flight is requests of one caller that are under way at the same time, to any nodes. Those that go to one node travel in one message,
// but that is all that they share: each is answered when its own answer comes. One goroutine waits for all of them, where
// as many calls of Do would take as many goroutines, and be sent one by one.
//
// The requests are numbered from 0. A Flight is for one goroutine; end it with Abandon.
type Flight struct {
	calls []call
	// landed has room for all calls, so that nobody who brings an outcome waits.
	landed chan int
}

// NewFlight makes room for n requests.
func NewFlight(n int) *Flight {
	f := &Flight{calls: make([]call, n), landed: make(chan int, n)}
	for i := range f.calls {
		f.calls[i].done, f.calls[i].number = f.landed, i
	}
	return f
}

// Landed gives the number of each request whose outcome has come, once.
func (f *Flight) Landed() <-chan int { return f.landed }

// Outcome is that of a request that has landed, as of Do. The response belongs to the caller.
func (f *Flight) Outcome(number int) (*kvpb.Response, error) {
	c := &f.calls[number]
	return c.response, c.err
}

// Abandon gives up the requests that have not landed. They may have been sent, and may yet take effect. It may be called again.
func (f *Flight) Abandon() {
	for i := range f.calls {
		if c := &f.calls[i]; c.stream != nil {
			_, _ = c.stream.abandon(c)
			c.stream = nil
		}
	}
}

// Submit sends requests to the node, all in one message if nothing else is on its way there. It does not wait: what cannot be taken at
// once is left to Do, because there is no room for it, or because it is large. It returns how many were taken, the first ones of
// numbers. requests[i] gets the number numbers[i], each of which is submitted once; it must not be changed before it has landed, and is not kept.
//
// An error other than ErrClosed, of the stream or of one request, comes as the outcome of a request that was taken.
func (b *BatchConn) Submit(f *Flight, numbers []int, requests []*kvpb.Request) (taken int, err error) {
	s, err := b.stream()
	if errors.Is(err, ErrClosed) {
		return 0, err
	}
	if err != nil {
		return 0, nil // Do says why
	}
	s.out.mu.Lock()
	for i, r := range requests {
		r.Id = 0
		size := r.SizeVT()
		if size >= largeRecord || s.broken.Load() || !s.hasRoomLocked(size) {
			break
		}
		c := &f.calls[numbers[i]]
		c.stream = s
		s.enterLocked(c)
		r.Id = c.id
		chunk, err := s.out.addLocked(tagRequests, r, size+1+varintSize(c.id))
		if err != nil {
			// The stream has just ended, or the request cannot be marshalled: that is for Do to say.
			s.leaveLocked(c.id)
			c.stream = nil
			break
		}
		c.chunk = chunk
		taken++
	}
	s.out.unlock(taken > 0 && (s.inFlight-taken < directCallers || s.out.quietLocked()))
	return taken, nil
}

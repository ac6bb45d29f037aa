package rpc

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Read-loop stealing: one goroutine reads a client's stream and does the work of each message
// before it reads the next, because that costs nothing: a read from memory takes a microsecond. But
// one read may have to wait for a disk, and what lies behind it on the stream, pings included, must
// not wait as well. So the reader is watched. If the work of one message takes longer than
// handoffAfter, another goroutine takes the reader's place: it begins what no goroutine has begun
// of that work, and reads on. The one that was replaced ends with the piece that it is busy with.
//
// A message of many requests has the next one read at once, by another goroutine, and is left to
// the one that read it: so a client with one stream gets more than one processor. If that one takes
// long, others share its work.
//
// Requests are taken in the order in which they came all the same: Take is done with a message
// before the next one is read, and is quick; what may be overtaken is work that has been taken.

// Work is what is left to do for the requests of a message when they have been taken.
type Work interface {
	// Run does what has not begun, piece by piece, and returns when there is no such piece. Several
	// goroutines may call it at once.
	Run()
	// Done is called once, after all calls of Run have returned, and there will be none any more.
	Done()
}

const (
	// handoffAfter is how long the work of a message may take before the reader is replaced; it is
	// noticed after up to twice that.
	handoffAfter = 20 * time.Millisecond
	// maxStolen bounds the goroutines of one stream that were replaced and are not done,
	// maxAllStolen those of a server. With so many of them the reader is not handedOff, and the
	// stream waits.
	maxStolen    = 8
	maxAllStolen = 256
	// manyRequests is from how many requests of a message on another goroutine reads at once, if none
	// is left to its reader: so two processors work for a client with one stream.
	manyRequests = 8
)

// errHandedOff ends a reader that another one has replaced.
var errHandedOff = errors.New("handedOff")

// handoff knows which goroutine reads a stream.
type handoff struct {
	stream *serverStream
	// ended has room for the one result: that of the last reader, if it is not the first.
	ended   chan error
	readers sync.WaitGroup

	mu struct {
		sync.Mutex
		current *reader
		// begun counts pieces of work; seen is its value when the timer went off last. watching: it
		// runs.
		begun, seen uint64
		// left is the piece that is left to the goroutine that read it; leftSeen what it was when the
		// timer went off last.
		left, leftSeen *piece
		watching       bool
		timer          *time.Timer
		stolen         int
		closed         bool
	}
}

// reader is a goroutine's time as the reader of a stream. Guarded by handoff.mu.
type reader struct {
	// piece is what it works on; nil while it reads.
	piece     *piece
	handedOff bool
	// leaves: its piece is left to it.
	leaves bool
	// own is used for each message it reads.
	own piece
}

// piece is the work of one message, and how many readers may still run it. Guarded by handoff.mu.
type piece struct {
	work  Work
	users int
	// begun: a goroutine that shared the work found nothing more to begin.
	begun bool
}

// do does the work of a message of so many requests, and returns false if the reader was replaced
// meanwhile.
func (r *handoff) do(self *reader, work Work, requests int) bool {
	r.mu.Lock()
	self.own = piece{work: work, users: 1}
	self.piece = &self.own
	r.mu.begun++
	if requests >= manyRequests && r.mu.left == nil && !r.mu.closed && runtime.GOMAXPROCS(0) > 1 {
		self.leaves = true
		r.mu.left = self.piece
		r.replaceLocked(nil)
	}
	if !r.mu.watching && !r.mu.closed {
		r.mu.watching = true
		if r.mu.timer == nil {
			r.mu.timer = time.AfterFunc(handoffAfter, r.look)
		} else {
			r.mu.timer.Reset(handoffAfter)
		}
	}
	r.mu.Unlock()
	return r.run(self, &self.own)
}

func (r *handoff) run(self *reader, p *piece) bool {
	p.work.Run()
	r.mu.Lock()
	p.users--
	last := p.users == 0
	handedOff := self.handedOff
	self.piece = nil
	switch {
	case self.leaves:
		if r.mu.left == p {
			r.mu.left = nil
		}
	case handedOff:
		r.mu.stolen--
		r.stream.server.stolen.Add(-1)
	}
	r.mu.Unlock()
	if last {
		p.work.Done()
	}
	return !handedOff
}

// look is called by the timer, while there is work now and then.
func (r *handoff) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy := r.mu.current.piece != nil
	if busy || r.mu.left != nil {
		r.stream.waitNoLonger()
	}
	switch {
	case r.mu.closed:
		r.mu.watching = false
		return
	case r.mu.begun == r.mu.seen && !busy && r.mu.left == nil:
		r.mu.watching = false
		return
	case r.mu.begun == r.mu.seen && busy && r.mayStealLocked():
		r.handOffLocked()
	}
	r.shareLeftLocked()
	r.mu.seen = r.mu.begun
	r.mu.timer.Reset(handoffAfter)
}

// mayStealLocked says whether one more goroutine may be stolen from.
func (r *handoff) mayStealLocked() bool {
	return r.mu.stolen < maxStolen && r.stream.server.stolen.Load() < maxAllStolen
}

// shareLeftLocked has the piece that is left to its reader shared, if that was so when the timer
// went off last.
func (r *handoff) shareLeftLocked() {
	p := r.mu.left
	long := p != nil && p == r.mu.leftSeen && !p.begun
	r.mu.leftSeen = p
	if !long || !r.mayStealLocked() {
		return
	}
	r.stream.server.metrics.handoffs.Inc()
	p.users++
	r.mu.stolen++
	r.stream.server.stolen.Add(1)
	r.readers.Go(func() {
		p.work.Run()
		r.mu.Lock()
		p.begun = true
		p.users--
		last := p.users == 0
		r.mu.stolen--
		r.stream.server.stolen.Add(-1)
		r.mu.Unlock()
		if last {
			p.work.Done()
		}
	})
}

// handOffLocked replaces a reader whose work takes long, and has its work shared.
func (r *handoff) handOffLocked() {
	r.stream.server.metrics.handoffs.Inc()
	p := r.mu.current.piece
	p.users++
	r.replaceLocked(p)
}

// replaceLocked has another goroutine read, when it has worked on p, if that is not nil.
func (r *handoff) replaceLocked(p *piece) {
	r.mu.current.handedOff = true
	if p != nil {
		r.mu.stolen++
		r.stream.server.stolen.Add(1)
	}
	next := &reader{piece: p}
	r.mu.current = next
	r.mu.begun++
	r.readers.Go(func() {
		if p != nil && !r.run(next, p) {
			return
		}
		if err := r.stream.serve(nil, next); !errors.Is(err, errHandedOff) {
			// The readers that were replaced may be busy with calls, which are waited for.
			r.stream.endCalls()
			r.ended <- err
		}
	})
}

// read reads the stream until it ends, with whichever goroutine reads it at that time.
func (r *handoff) read(first *kvpb.BatchRequest) error {
	self := &reader{}
	r.mu.Lock()
	r.mu.current = self
	r.mu.Unlock()
	err := r.stream.serve(first, self)
	if errors.Is(err, errHandedOff) {
		err = <-r.ended
	}
	r.mu.Lock()
	r.mu.closed = true
	if r.mu.timer != nil {
		r.mu.timer.Stop()
	}
	r.mu.Unlock()
	return err
}

// wait returns when no reader runs any more.
func (r *handoff) wait() { r.readers.Wait() }

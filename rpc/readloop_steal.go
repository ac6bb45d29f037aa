package rpc

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Read-loop stealing: one goroutine reads a client's stream and does the work of each message
// before it reads the next, which costs no goroutine switch: a read from memory takes a
// microsecond. But a read may have to wait for a disk, and messages behind it on the stream, pings
// included, must not wait as well. So the reader is watched. If the work of one message takes
// longer than handoffAfter, another goroutine replaces the reader: it continues with the requests
// that were not begun, and reads on. The replaced goroutine ends with the request that it is busy
// with.
//
// A message of many requests is left to the goroutine that read it, and another goroutine reads the
// next message at once: so a client with one stream can use more than one processor. If that work
// takes long, other goroutines share it.
//
// The order of requests is kept all the same: Take has finished with a message before the next one
// is read, and is quick; only the work that Take has returned may be overtaken.

// Work is the rest of the work for the requests of a message, after Take.
type Work interface {
	// Run does the parts that have not begun, one by one, and returns when none is left. Several
	// goroutines may call it at once.
	Run()
	// Done is called once, after all calls of Run have returned and no further call will come.
	Done()
}

const (
	// handoffAfter is how long the work of a message may take before the reader is replaced. The
	// watch may notice it after up to twice that time.
	handoffAfter = 20 * time.Millisecond
	// maxStolen bounds the goroutines of one stream that were replaced and have not finished,
	// maxAllStolen those of a server. Beyond the bounds the reader is not replaced, and the stream
	// waits.
	maxStolen    = 8
	maxAllStolen = 256
	// manyRequests is the number of requests in a message from which another goroutine reads at
	// once, unless a message is left to its reader already: so two processors work for a client
	// with one stream.
	manyRequests = 8
)

// errHandedOff ends a reader that was replaced.
var errHandedOff = errors.New("handedOff")

// handoff manages which goroutine reads a stream.
type handoff struct {
	stream *serverStream
	// ended holds the result of the last reader, if that is not the first reader. Capacity 1.
	ended   chan error
	readers sync.WaitGroup

	mu struct {
		sync.Mutex
		current *reader
		// begun counts pieces of work; seen is its value when the timer last fired. watching is set
		// while the timer runs.
		begun, seen uint64
		// left is the piece that is left to the goroutine that read it; leftSeen is its value when
		// the timer last fired.
		left, leftSeen *piece
		watching       bool
		timer          *time.Timer
		stolen         int
		closed         bool
	}
}

// reader is the state of a goroutine while it reads the stream. Guarded by handoff.mu.
type reader struct {
	// piece is the piece that it works on; nil while it reads.
	piece     *piece
	handedOff bool
	// leaves is set if its piece is left to it.
	leaves bool
	// own is the memory for the pieces that it reads.
	own piece
}

// piece is the work of one message, and the number of readers that may still run it. Guarded by
// handoff.mu.
type piece struct {
	work  Work
	users int
	// begun is set when a goroutine that shared the work found nothing left to begin.
	begun bool
}

// do does the work of a message with that many requests. It returns false if the reader was
// replaced meanwhile.
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

// look runs when the timer fires, which it does periodically while there is work.
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

// mayStealLocked reports whether one more reader may be replaced.
func (r *handoff) mayStealLocked() bool {
	return r.mu.stolen < maxStolen && r.stream.server.stolen.Load() < maxAllStolen
}

// shareLeftLocked has other goroutines share the piece that is left to its reader, if it was left
// already when the timer last fired.
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

// replaceLocked starts another goroutine as the reader. It first works on p, unless p is nil.
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
			// The replaced readers may be busy with calls, which the stream waits for.
			r.stream.endCalls()
			r.ended <- err
		}
	})
}

// read reads the stream until it ends, on one goroutine after the other.
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

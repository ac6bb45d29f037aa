package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"
)

// An outbox gathers records (requests, responses, Raft messages) and sends them over one stream, several to a message.
//
// Records are marshalled when they are added, into chunks that are exactly the bytes of the message's repeated field: so the
// caller's object is not kept, the queue's size is known to the byte, and sending is handing chunks over to gRPC.
//
// Who sends: at most one goroutine at a time, the one that has set `sending`.
//
//   - Direct: an adder that says so sends its own record at once, if nobody is sending and gRPC has written everything it was
//     given before. The second condition makes it impossible to block: SendMsg waits only while the stream's write quota
//     (64 KiB) is used up, and gRPC returns quota for bytes before it frees their buffer.
//     On a lane (lane.go) it writes what the socket has room for, and leaves the rest to the goroutine.
//   - Otherwise the outbox's own goroutine (run) is woken. By the time it runs, other adders have added, and all of that
//     leaves together. It may block in SendMsg, and what gathers meanwhile makes the next message.
//
// A direct sender sends once and then leaves what has gathered to the goroutine, so that no adder works long for others.
//
// Rejected: letting the direct sender go on until the queue is empty. Under load it would send for others for as long as there is
// load, and it could block on flow control without looking at its own context.
//
// INVARIANT: a record lies within one chunk, so a message may end after any chunk.
// INVARIANT: after close has returned, the stream is not touched.
type outbox struct {
	// wake has room for one token: the goroutine should look.
	wake chan struct{}
	// stop ends the goroutine.
	stop chan struct{}
	// unwritten counts the chunks given to gRPC and not yet freed by it.
	unwritten unwritten
	// progress is called, with mu held, when a message has been sent or the outbox has closed: pending bytes went down. May be nil.
	progress func()

	mu struct {
		sync.Mutex
		// stream is nil until attach.
		stream messageSender
		closed bool
		// sending is set while a goroutine is in SendMsg, without mu.
		sending bool
		// partial: the stream is a lane, and has the rest of a message to write before the next.
		partial bool
		// paused: no sending begins.
		paused bool
		// idle is made by who waits for sending to end.
		idle chan struct{}
		// pending holds chunks to send, oldest first; records are added to the last. bytes is their length together.
		pending []*[]byte
		bytes   int
		// first numbers pending[0]: chunks below it have been given to gRPC.
		first uint64
		// tail is an encoded record that ends the next message; setting it anew replaces it.
		tail []byte
		// frame is what the goroutine in SendMsg uses.
		frame frame
		// sent counts messages; last is when the last one was, on a lane.
		sent uint64
		last time.Time
	}
}

// record is a protobuf message with generated marshalling.
type record interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

// messageSender is the sending half of a gRPC stream.
type messageSender interface{ SendMsg(m any) error }

const (
	// firstChunk is the capacity of a message's first chunk, nextChunk of further ones. Both are above the 1 KiB below which
	// gRPC would not tell when a buffer is free again.
	firstChunk = 4 << 10
	nextChunk  = 32 << 10
	// largeRecord is the size from which a record is marshalled outside the lock, into a chunk of its own.
	largeRecord = 32 << 10
	// maxFrame ends a message at the next chunk boundary. It bounds how long one message keeps the others waiting; a single
	// record may be larger.
	maxFrame = 1 << 20
)

var errOutboxClosed = errors.New("stream is closed")

func newOutbox() *outbox {
	return &outbox{wake: make(chan struct{}, 1), stop: make(chan struct{})}
}

// attach gives the outbox its stream, and sends what has gathered.
func (o *outbox) attach(stream messageSender) {
	o.mu.Lock()
	o.mu.stream = stream
	o.mu.Unlock()
	o.signal()
}

// replace gives the outbox another stream. When it returns, the one before is not touched any more; unless the outbox was closed, which
// it says. It waits for a SendMsg in progress.
func (o *outbox) replace(stream messageSender) bool {
	o.mu.Lock()
	o.mu.paused = true
	idle := o.idleLocked()
	o.mu.Unlock()
	if idle != nil {
		<-idle
	}
	o.mu.Lock()
	o.mu.paused = false
	o.mu.stream = stream
	closed := o.mu.closed
	o.mu.Unlock()
	o.signal()
	return !closed
}

// idleLocked gives what is closed when the SendMsg in progress ends; nil if there is none.
func (o *outbox) idleLocked() <-chan struct{} {
	if !o.mu.sending {
		return nil
	}
	if o.mu.idle == nil {
		o.mu.idle = make(chan struct{})
	}
	return o.mu.idle
}

// run sends until close. It is the outbox's goroutine.
func (o *outbox) run() {
	for {
		select {
		case <-o.wake:
		case <-o.stop:
			return
		}
		// Whoever is about to add goes first: the woken goroutine would otherwise run before all others that are ready, and with 64
		// callers send two records to a message instead of twenty.
		runtime.Gosched()
		o.mu.Lock()
		for o.readyLocked() {
			o.sendLocked(false)
		}
		o.mu.Unlock()
	}
}

// close ends sending. What is pending is dropped. It waits for a SendMsg in progress, so the stream must be ending, or flowing.
// The goroutine ends soon after.
func (o *outbox) close() {
	o.mu.Lock()
	o.closeLocked()
	idle := o.idleLocked()
	o.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// closeLocked marks the outbox closed and forgets what is pending. It does not wait.
func (o *outbox) closeLocked() {
	if o.mu.closed {
		return
	}
	o.mu.closed = true
	close(o.stop)
	for _, chunk := range o.mu.pending {
		buffers.Put(chunk)
	}
	o.mu.pending, o.mu.bytes, o.mu.tail = nil, 0, nil
	if o.progress != nil {
		o.progress()
	}
}

// addLocked marshals one record with its field tag. It gives the number of its chunk.
func (o *outbox) addLocked(tag byte, r record, size int) (chunk uint64, err error) {
	if o.mu.closed {
		return 0, errOutboxClosed
	}
	total := recordSize(size)
	last := o.lastWithRoomLocked(total)
	b := *last
	used := len(b)
	b = b[:used+total]
	if err := putRecord(b[used:], tag, r, size); err != nil {
		return 0, err
	}
	*last = b
	o.mu.bytes += total
	return o.mu.first + uint64(len(o.mu.pending)) - 1, nil
}

// addChunkLocked adds a record that prepareChunk has marshalled.
func (o *outbox) addChunkLocked(chunk *[]byte) (uint64, error) {
	if o.mu.closed {
		return 0, errOutboxClosed
	}
	o.mu.pending = append(o.mu.pending, chunk)
	o.mu.bytes += len(*chunk)
	return o.mu.first + uint64(len(o.mu.pending)) - 1, nil
}

// prepareChunk marshals a large record outside the lock.
func prepareChunk(tag byte, r record, size int) (*[]byte, error) {
	total := recordSize(size)
	chunk := buffers.Get(max(total, firstChunk))
	*chunk = (*chunk)[:total]
	if err := putRecord(*chunk, tag, r, size); err != nil {
		buffers.Put(chunk)
		return nil, err
	}
	return chunk, nil
}

func (o *outbox) lastWithRoomLocked(total int) *[]byte {
	n := len(o.mu.pending)
	if n > 0 {
		if last := o.mu.pending[n-1]; cap(*last)-len(*last) >= total {
			return last
		}
	}
	size := firstChunk
	if n > 0 {
		size = nextChunk
	}
	chunk := buffers.Get(max(total, size))
	*chunk = (*chunk)[:0]
	o.mu.pending = append(o.mu.pending, chunk)
	return chunk
}

// recordSize is the length of a record of the given size with its tag and length prefix. All tags are one byte.
func recordSize(size int) int { return 1 + varintSize(uint64(size)) + size }

func putRecord(b []byte, tag byte, r record, size int) error {
	b[0] = tag
	n := 1 + binary.PutUvarint(b[1:], uint64(size))
	wrote, err := r.MarshalToSizedBufferVT(b[n : n+size])
	if err == nil && wrote != size {
		err = fmt.Errorf("wrote %d of %d bytes: the message was changed meanwhile", wrote, size)
	}
	if err != nil {
		return fmt.Errorf("marshal %T: %w", r, err)
	}
	return nil
}

// unlock releases mu after adding and sees to it that what was added is sent. direct says that the caller's record is worth a
// message of its own, because nobody else is likely to add another soon.
func (o *outbox) unlock(direct bool) {
	if !o.readyLocked() {
		o.mu.Unlock()
		return
	}
	if direct && o.unwritten.chunks.Load() == 0 && !o.mu.partial {
		o.sendLocked(true)
		direct = !o.readyLocked()
	} else {
		direct = false
	}
	o.mu.Unlock()
	if !direct {
		o.signal()
	}
}

// quietLocked says that a message is worth sending at once, however many others may come: there is a lane, on which a message costs
// one system call, and there was none just before.
func (o *outbox) quietLocked() bool {
	return !o.mu.last.IsZero() && time.Since(o.mu.last) >= directPause
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) readyLocked() bool {
	return o.mu.stream != nil && !o.mu.closed && !o.mu.sending && !o.mu.paused && (o.mu.bytes > 0 || o.mu.tail != nil || o.mu.partial)
}

// sendLocked sends one message of what is pending. It releases mu meanwhile. A stream that refuses a message is over, and so is the
// outbox: its owner hears of it from the receiving half. A direct send does not block.
func (o *outbox) sendLocked(direct bool) {
	o.mu.sending = true
	frame := o.takeLocked()
	stream := o.mu.stream
	o.mu.Unlock()
	done, err := true, error(nil)
	lane, onLane := stream.(*laneSender)
	if onLane && direct {
		done, err = lane.trySend(frame)
	} else {
		err = stream.SendMsg(frame)
	}
	o.mu.Lock()
	if onLane {
		o.mu.last = time.Now()
	}
	o.mu.sending = false
	o.mu.partial = !done
	clear(frame.chunks)
	if err != nil {
		o.closeLocked()
	}
	if o.mu.idle != nil {
		close(o.mu.idle)
		o.mu.idle = nil
	}
	if o.progress != nil {
		o.progress()
	}
}

// takeLocked moves the oldest chunks, up to maxFrame bytes, into the frame.
func (o *outbox) takeLocked() *frame {
	if o.mu.tail != nil {
		last := o.lastWithRoomLocked(len(o.mu.tail))
		*last = append(*last, o.mu.tail...)
		o.mu.bytes += len(o.mu.tail)
		o.mu.tail = nil
	}
	n, bytes := 0, 0
	for n < len(o.mu.pending) && (n == 0 || bytes+len(*o.mu.pending[n]) <= maxFrame) {
		bytes += len(*o.mu.pending[n])
		n++
	}
	f := &o.mu.frame
	f.unwritten = &o.unwritten
	f.chunks = append(f.chunks[:0], o.mu.pending[:n]...)
	kept := copy(o.mu.pending, o.mu.pending[n:])
	clear(o.mu.pending[kept:])
	o.mu.pending = o.mu.pending[:kept]
	o.mu.bytes -= bytes
	o.mu.first += uint64(n)
	o.mu.sent++
	o.unwritten.chunks.Add(int64(n))
	return f
}

// frame is a message whose encoding is ready: the codec hands its chunks to gRPC as they are.
type frame struct {
	chunks    []*[]byte
	unwritten *unwritten
}

// size is the length of the encoding.
func (f *frame) size() int {
	size := 0
	for _, chunk := range f.chunks {
		size += len(*chunk)
	}
	return size
}

func (f *frame) buffers() mem.BufferSlice {
	slice := make(mem.BufferSlice, len(f.chunks))
	for i, chunk := range f.chunks {
		slice[i] = mem.NewBuffer(chunk, f.unwritten)
	}
	return slice
}

// unwritten is the pool to which gRPC gives chunks back when it has written them; it counts those still out.
type unwritten struct{ chunks atomic.Int64 }

// Get implements mem.BufferPool.
func (u *unwritten) Get(length int) *[]byte { return buffers.Get(length) }

// Put implements mem.BufferPool.
func (u *unwritten) Put(chunk *[]byte) {
	buffers.Put(chunk)
	u.chunks.Add(-1)
}

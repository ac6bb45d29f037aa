package outbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// An Outbox gathers records (requests, responses, Raft messages) and sends them over one
// connection, several to a message.
//
// Records are marshalled when they are added, into chunks that are exactly the bytes of the
// message's repeated field. So the caller's object is not kept, the queue's size is known to the
// byte, and sending only passes chunks to the connection.
//
// At most one goroutine at a time sends, the one that has set `sending`.
//
//   - Direct: an adder that says so sends its own record at once, if no other goroutine is sending
//     and nothing is left unwritten of what was sent before. It writes what the socket has room
//     for, leaves the rest to the outbox's goroutine, and does not block.
//   - Otherwise the outbox's own goroutine (Run) is woken. By the time it runs, other adders have
//     added, and all of that leaves together. It may block in Send, and what gathers meanwhile
//     makes the next message.
//
// A direct sender sends once and then leaves what has gathered to the goroutine, so that no adder
// works long for others.
//
// Rejected: letting the direct sender go on until the queue is empty. Under load it would send for
// others for as long as there is load, and it could block without looking at its own context.
//
// INVARIANT: a record lies within one chunk, so a message may end after any chunk. INVARIANT: after
// Close has returned, the outbox does not touch the connection.
type Outbox struct {
	// woken holds a token if the goroutine must look. Capacity 1.
	woken chan struct{}
	// stop ends the goroutine.
	stop     chan struct{}
	progress func() // see New

	mu struct {
		sync.Mutex
		// conn is nil until Attach.
		conn   Conn
		closed bool
		// sending is set while a goroutine is sending, without mu.
		sending bool
		// partial is set if the connection must write the rest of a message before the next one.
		partial bool
		// keepalive is set if a keepalive is due, unless something else is sent.
		keepalive bool
		// idle is closed when the sending in progress ends. The goroutine that waits for that makes
		// it.
		idle chan struct{}
		// pending holds the chunks to send, oldest first; records are added to the last one. bytes
		// is their total length.
		pending []*[]byte
		bytes   int
		// unsent counts the bytes that the connection has taken and not written yet.
		unsent int
		// first is the number of pending[0]: chunks below it have been passed to the connection.
		first uint64
		// tail is an encoded record that ends the message with the last chunk. Setting it replaces the
		// one before.
		// tailNumber is the number of the last one.
		tail       []byte
		tailNumber uint64
		// sent counts messages; last is the time of the last one.
		sent uint64
		last time.Time
	}

	// chunks and parts hold the message that is being sent. They belong to the sending goroutine:
	// takeLocked fills them, and send empties them without mu.
	chunks []*[]byte
	parts  [][]byte
}

// Record is a protobuf message with generated marshalling.
type Record interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
}

// Conn is the sending half of a connection: see transport.Conn.
type Conn interface {
	Send(parts ...[]byte) error
	TrySend(parts ...[]byte) (done bool, err error)
	SendKeepalive() error
}

var _ Conn = (*transport.Conn)(nil)

const (
	// firstChunk is the capacity of a message's first chunk, nextChunk that of further ones.
	firstChunk = 4 << 10
	nextChunk  = 32 << 10
	// LargeRecord is the size from which a record is marshalled outside the lock, into a chunk of
	// its own.
	LargeRecord = 32 << 10
	// MaxFrame ends a message at the next chunk boundary. It bounds how long one message keeps the
	// others waiting; a single record may be larger.
	MaxFrame = 1 << 20
	// DirectPause is how long a connection must have been quiet for a goroutine to send its message
	// itself, at once. After a recent message others are likely to follow, and are sent together.
	DirectPause = 50 * time.Microsecond
)

// ErrClosed is the error of adding a record to a closed outbox.
var ErrClosed = errors.New("stream is closed")

// New returns an outbox. The owner starts its goroutine (Run). progress, if not nil, is called with
// the lock held when a message has been sent or the outbox has closed, so that fewer bytes wait
// than before.
func New(progress func()) *Outbox {
	return &Outbox{woken: make(chan struct{}, 1), stop: make(chan struct{}), progress: progress}
}

// Lock takes the outbox's lock, which also guards its owner's state of the records.
func (o *Outbox) Lock() { o.mu.Lock() }

// Unlock releases the lock. After adding use UnlockAndSend.
func (o *Outbox) Unlock() { o.mu.Unlock() }

// PendingLocked returns how many bytes wait to be passed to the connection.
func (o *Outbox) PendingLocked() int { return o.mu.bytes }

// UnsentLocked returns how many bytes the connection has taken and not written yet.
func (o *Outbox) UnsentLocked() int { return o.mu.unsent }

// ClosedLocked reports that nothing is added or sent any more.
func (o *Outbox) ClosedLocked() bool { return o.mu.closed }

// SendingLocked reports that a goroutine is sending.
func (o *Outbox) SendingLocked() bool { return o.mu.sending }

// GivenLocked reports that a chunk was passed to the connection.
func (o *Outbox) GivenLocked(chunk uint64) bool { return chunk < o.mu.first }

// WrittenLocked reports that a chunk, and all that was sent before it and with it, has been written
// to the socket.
func (o *Outbox) WrittenLocked(chunk uint64) bool {
	return !o.mu.sending && !o.mu.partial && chunk < o.mu.first
}

// SetTailLocked sets the encoded record that ends the message with all that waits now. It replaces
// one with a lower number.
func (o *Outbox) SetTailLocked(tail []byte, number uint64) {
	if !o.mu.closed && number >= o.mu.tailNumber {
		o.mu.tail, o.mu.tailNumber = tail, number
	}
}

// Messages returns how many messages were passed to the connection.
func (o *Outbox) Messages() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.sent
}

// Attach sets the connection, and sends what has gathered.
func (o *Outbox) Attach(conn Conn) {
	o.mu.Lock()
	o.mu.conn = conn
	o.mu.Unlock()
	o.Wake()
}

// KeepAlive sends a keepalive, unless something else is sent first.
func (o *Outbox) KeepAlive() {
	o.mu.Lock()
	o.mu.keepalive = true
	o.mu.Unlock()
	o.Wake()
}

// idleLocked returns a channel that is closed when the sending in progress ends; nil if nothing is
// being sent.
func (o *Outbox) idleLocked() <-chan struct{} {
	if !o.mu.sending {
		return nil
	}
	if o.mu.idle == nil {
		o.mu.idle = make(chan struct{})
	}
	return o.mu.idle
}

// Run sends until Close. It is the outbox's goroutine.
func (o *Outbox) Run() {
	for {
		select {
		case <-o.woken:
		case <-o.stop:
			return
		}
		// Let goroutines that are about to add run first: the woken goroutine would otherwise run
		// before all others that are ready, and with 64 callers send two records per message
		// instead of twenty.
		runtime.Gosched()
		o.mu.Lock()
		for o.readyLocked() {
			m := o.takeLocked()
			o.mu.Unlock()
			done, err := o.send(m, false)
			o.mu.Lock()
			o.sentLocked(done, err)
		}
		o.mu.Unlock()
	}
}

// Close stops sending, and drops pending records. It waits for a send in progress, so the
// connection must be ending, or flowing. The goroutine ends soon after.
func (o *Outbox) Close() {
	o.mu.Lock()
	o.CloseLocked()
	idle := o.idleLocked()
	o.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// CloseLocked marks the outbox closed and forgets what is pending. It does not wait.
func (o *Outbox) CloseLocked() {
	if o.mu.closed {
		return
	}
	o.mu.closed = true
	close(o.stop)
	for _, chunk := range o.mu.pending {
		wire.Buffers.Put(chunk)
	}
	o.mu.pending, o.mu.bytes, o.mu.tail = nil, 0, nil
	if o.progress != nil {
		o.progress()
	}
}

// AddLocked marshals one record with its field tag. It returns the number of its chunk.
func (o *Outbox) AddLocked(tag byte, r Record, size int) (chunk uint64, err error) {
	if o.mu.closed {
		return 0, ErrClosed
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
	if invariants.Enabled && len(o.mu.pending) <= invariants.Small {
		o.checkInvariantsLocked()
	}
	return o.mu.first + uint64(len(o.mu.pending)) - 1, nil
}

// AddChunkLocked adds a record that Prepare has marshalled.
func (o *Outbox) AddChunkLocked(chunk *[]byte) (uint64, error) {
	if o.mu.closed {
		return 0, ErrClosed
	}
	o.mu.pending = append(o.mu.pending, chunk)
	o.mu.bytes += len(*chunk)
	return o.mu.first + uint64(len(o.mu.pending)) - 1, nil
}

// Prepare marshals a large record outside the lock.
func Prepare(tag byte, r Record, size int) (*[]byte, error) {
	total := recordSize(size)
	chunk := wire.Buffers.Get(max(total, firstChunk))
	*chunk = (*chunk)[:total]
	if err := putRecord(*chunk, tag, r, size); err != nil {
		wire.Buffers.Put(chunk)
		return nil, err
	}
	return chunk, nil
}

func (o *Outbox) lastWithRoomLocked(total int) *[]byte {
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
	chunk := wire.Buffers.Get(max(total, size))
	*chunk = (*chunk)[:0]
	o.mu.pending = append(o.mu.pending, chunk)
	return chunk
}

// recordSize is the length of a record of a size, with its tag and length prefix. All tags are one
// byte.
func recordSize(size int) int { return 1 + wire.VarintSize(uint64(size)) + size }

// Encode encodes one record with its field tag, for SetTailLocked.
func Encode(tag byte, r Record) ([]byte, error) {
	size := r.SizeVT()
	b := make([]byte, recordSize(size))
	return b, putRecord(b, tag, r, size)
}

func putRecord(b []byte, tag byte, r Record, size int) error {
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

// UnlockAndSend releases the lock after adding, and has the added records sent. direct says that
// the caller's record is worth a message of its own, because no other is likely to be added soon.
func (o *Outbox) UnlockAndSend(direct bool) {
	if !o.readyLocked() {
		o.mu.Unlock()
		return
	}
	if direct && !o.mu.partial && (o.mu.bytes > 0 || o.mu.tail != nil) {
		m := o.takeLocked()
		o.mu.Unlock()
		done, err := o.send(m, true)
		o.mu.Lock()
		o.sentLocked(done, err)
		direct = !o.readyLocked()
	} else {
		direct = false
	}
	o.mu.Unlock()
	if !direct {
		o.Wake()
	}
}

// QuietLocked reports that a message is worth sending at once, however many others may come: it
// costs one system call, and none was made just before.
func (o *Outbox) QuietLocked() bool {
	return !o.mu.last.IsZero() && time.Since(o.mu.last) >= DirectPause
}

// Wake wakes the outbox's goroutine.
func (o *Outbox) Wake() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

func (o *Outbox) readyLocked() bool {
	return o.mu.conn != nil && !o.mu.closed && !o.mu.sending &&
		(o.mu.bytes > 0 || o.mu.tail != nil || o.mu.partial || o.mu.keepalive)
}

// A goroutine sends in three steps: takeLocked, send without mu, sentLocked.

// outgoing is one message, or the rest of the last one. The parts belong to the outbox.
type outgoing struct {
	conn Conn
	// partial is set if the connection must write the rest of a message first.
	partial bool
}

// send sends a message taken by takeLocked, without mu. A direct send does not block; done reports
// whether all of the message was written.
func (o *Outbox) send(m outgoing, direct bool) (done bool, err error) {
	done = true
	switch {
	case len(o.parts) == 0 && !m.partial:
		err = m.conn.SendKeepalive()
	case direct:
		done, err = m.conn.TrySend(o.parts...)
	default:
		err = m.conn.Send(o.parts...)
	}
	for _, chunk := range o.chunks {
		wire.Buffers.Put(chunk)
	}
	clear(o.chunks)
	clear(o.parts)
	return done, err
}

// sentLocked ends the sending that takeLocked began. If the connection takes no more messages, it
// is over, and so is the outbox: its owner learns that from the receiving half.
func (o *Outbox) sentLocked(done bool, err error) {
	o.mu.last = time.Now()
	o.mu.sending = false
	o.mu.partial = !done
	if done {
		o.mu.unsent = 0
	}
	o.mu.keepalive = false
	if err != nil {
		o.CloseLocked()
	}
	if o.mu.idle != nil {
		close(o.mu.idle)
		o.mu.idle = nil
	}
	if o.progress != nil {
		o.progress()
	}
}

// takeLocked moves the oldest chunks, up to maxFrame bytes, out of the queue, and begins a send:
// until sentLocked no other goroutine sends.
func (o *Outbox) takeLocked() outgoing {
	if invariants.Enabled {
		invariants.Check(!o.mu.sending && !o.mu.closed && o.mu.conn != nil,
			"an outbox sends: sending already %t, closed %t", o.mu.sending, o.mu.closed)
	}
	o.mu.sending = true
	m := outgoing{conn: o.mu.conn, partial: o.mu.partial}
	n, bytes := 0, 0
	for n < len(o.mu.pending) && (n == 0 || bytes+len(*o.mu.pending[n]) <= MaxFrame) {
		bytes += len(*o.mu.pending[n])
		n++
	}
	// INVARIANT: no message has two tails: decoding would merge them. So the tail does not wait in a
	// chunk, but joins the message that takes the last one.
	if size := len(o.mu.tail); size > 0 && n == len(o.mu.pending) {
		last := o.lastWithRoomLocked(size)
		*last = append(*last, o.mu.tail...)
		o.mu.bytes += size
		o.mu.tail = nil
		n, bytes = len(o.mu.pending), bytes+size
	}
	o.chunks, o.parts = append(o.chunks[:0], o.mu.pending[:n]...), o.parts[:0]
	for _, chunk := range o.chunks {
		o.parts = append(o.parts, *chunk)
	}
	kept := copy(o.mu.pending, o.mu.pending[n:])
	clear(o.mu.pending[kept:])
	o.mu.pending = o.mu.pending[:kept]
	o.mu.bytes -= bytes
	o.mu.unsent += bytes
	o.mu.first += uint64(n)
	if n > 0 {
		o.mu.sent++
	}
	if invariants.Enabled {
		o.checkInvariantsLocked()
	}
	return m
}

// checkInvariantsLocked checks the counts of the queue.
func (o *Outbox) checkInvariantsLocked() {
	bytes := 0
	for _, chunk := range o.mu.pending {
		bytes += len(*chunk)
	}
	invariants.Check(bytes == o.mu.bytes, "an outbox has %d bytes to send, and counts %d", bytes,
		o.mu.bytes)
	invariants.Check(o.mu.unsent >= 0, "an outbox has %d bytes left to write", o.mu.unsent)
}

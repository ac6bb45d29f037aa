package outbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// The tags of the records of these tests.
const (
	tagRequests  = 2<<3 | 2 // BatchRequest.requests
	tagResponses = 1<<3 | 2 // BatchResponse.responses
	tagPing      = 2<<3 | 2 // MessageBatch.ping
)

// fakeConn is a messageSender whose socket has room for a few bytes at a time.
type fakeConn struct {
	// gate, if set, is received from before each blocking send.
	gate chan struct{}
	// full: there is no room for direct sends.
	full atomic.Bool

	mu       sync.Mutex
	messages [][]byte
	// rest is what a direct send has left.
	rest       []byte
	keepalives int
	inside     bool
	err        error
}

func (w *fakeConn) enter() func() {
	w.mu.Lock()
	if w.inside {
		panic("two senders at a time")
	}
	w.inside = true
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		w.inside = false
		w.mu.Unlock()
	}
}

func (w *fakeConn) Send(parts ...[]byte) error {
	defer w.enter()()
	if w.gate != nil {
		<-w.gate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.rest != nil {
		w.messages, w.rest = append(w.messages, w.rest), nil
	}
	if len(parts) > 0 {
		w.messages = append(w.messages, bytes.Join(parts, nil))
	}
	return nil
}

func (w *fakeConn) TrySend(parts ...[]byte) (bool, error) {
	defer w.enter()()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rest != nil || len(parts) == 0 {
		panic("a direct send of nothing, or after half a message")
	}
	if w.full.Load() {
		w.rest = bytes.Join(parts, nil)
	} else if w.err == nil {
		w.messages = append(w.messages, bytes.Join(parts, nil))
	}
	return w.rest == nil, w.err
}

func (w *fakeConn) SendKeepalive() error {
	defer w.enter()()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keepalives++
	return w.err
}

func (w *fakeConn) all() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.messages
}

// Whatever is added, in whatever sizes and pace, arrives once, whole, and in order; messages stay
// below their limit; and nothing is pending at the end.
func TestOutboxDeliversInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(3000, 5000),
			rapid.IntRange(30<<10, 40<<10), rapid.IntRange(1<<20, 2<<20)), 1, 40).Draw(rt, "sizes")
		direct := rapid.SliceOfN(rapid.Bool(), len(sizes), len(sizes)).Draw(rt, "direct")
		full := rapid.SliceOfN(rapid.Bool(), len(sizes), len(sizes)).Draw(rt, "full")
		paused := rapid.SliceOfN(rapid.Bool(), len(sizes), len(sizes)).Draw(rt, "paused")
		attachAt := rapid.IntRange(0, len(sizes)-1).Draw(rt, "attach")
		synctest.Test(t, func(t *testing.T) {
			w := new(fakeConn)
			o := New(nil)
			done := make(chan struct{})
			go func() { defer close(done); o.Run() }()
			for i, size := range sizes {
				if i == attachAt {
					o.Attach(w)
				}
				w.full.Store(full[i])
				addPair(t, o, uint64(i), size, direct[i])
				if paused[i] {
					synctest.Wait() // The goroutine has sent.
				}
			}
			synctest.Wait()
			next := uint64(0)
			for _, message := range w.all() {
				batch := new(kvpb.BatchResponse)
				if err := batch.UnmarshalVTUnsafe(message); err != nil {
					rt.Fatal(err)
				}
				if len(message) > MaxFrame && len(batch.Responses) > 1 &&
					len(message)-len(batch.Responses[0].GetGet().Value) > MaxFrame {
					rt.Fatalf("a message of %d bytes with %d records", len(message), len(batch.Responses))
				}
				for _, r := range batch.Responses {
					value := r.GetGet().Value
					if r.Id != next || !bytes.Equal(value, content(next, sizes[next])) {
						rt.Fatalf("record %d came in place of %d, with %d bytes", r.Id, next, len(value))
					}
					next++
				}
			}
			if next != uint64(len(sizes)) {
				rt.Fatalf("%d of %d arrived", next, len(sizes))
			}
			o.mu.Lock()
			if o.mu.bytes != 0 || len(o.mu.pending) != 0 || o.mu.partial {
				rt.Fatalf("%d bytes in %d chunks pending, partial %t", o.mu.bytes,
					len(o.mu.pending), o.mu.partial)
			}
			o.mu.Unlock()
			o.Close()
			<-done
		})
	})
}

func content(i uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(i, 1))
	for j := 0; j+8 <= size; j += 64 {
		binary.LittleEndian.PutUint64(b[j:], r.Uint64())
	}
	return b
}

func addPair(t testing.TB, o *Outbox, id uint64, size int, direct bool) {
	r := &kvpb.Response{Id: id,
		Result: &kvpb.Response_Get{Get: &kvpb.GetResponse{Value: content(id, size)}}}
	n := r.SizeVT()
	var chunk *[]byte
	var err error
	if n >= LargeRecord {
		if chunk, err = Prepare(tagResponses, r, n); err != nil {
			t.Fatal(err)
		}
	}
	o.mu.Lock()
	if chunk != nil {
		_, err = o.AddChunkLocked(chunk)
	} else {
		_, err = o.AddLocked(tagResponses, r, n)
	}
	o.UnlockAndSend(direct)
	if err != nil && !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

// A direct adder sends at once if everything before it was written, and otherwise leaves it to the
// goroutine and does not block.
func TestOutboxDirectNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(fakeConn)
		o := New(nil)
		o.Attach(w)
		<-o.woken // the test is the goroutine
		w.full.Store(true)
		addPair(t, o, 0, 10, true)
		if w.rest == nil || !o.mu.partial {
			t.Fatal("not sent at once")
		}
		select {
		case <-o.woken:
		default:
			t.Fatal("the goroutine was not woken for the rest")
		}
		addPair(t, o, 1, 10, true)
		if len(w.all()) != 0 || o.mu.bytes == 0 {
			t.Fatal("sent although the first was not written yet")
		}
		select {
		case <-o.woken:
		default:
			t.Fatal("the goroutine was not woken")
		}
		// The goroutine sends; meanwhile an adder neither sends nor waits, and when the sender is done
		// it sees the addition.
		w.full.Store(false)
		w.gate = make(chan struct{})
		done := make(chan struct{})
		go func() { defer close(done); o.Run() }()
		o.Wake()
		synctest.Wait()
		addPair(t, o, 2, 10, true)
		close(w.gate)
		synctest.Wait()
		if got := len(w.all()); got != 3 {
			t.Fatalf("%d messages", got)
		}
		o.Close()
		<-done
	})
}

// A keepalive is sent when there is nothing else to send, once.
func TestOutboxKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := new(fakeConn)
		o := New(nil)
		o.KeepAlive()
		o.Attach(w)
		done := make(chan struct{})
		go func() { defer close(done); o.Run() }()
		synctest.Wait()
		if w.keepalives != 1 || len(w.all()) != 0 {
			t.Fatalf("%d keepalives, %d messages", w.keepalives, len(w.all()))
		}
		o.mu.Lock()
		o.mu.keepalive = true
		o.mu.Unlock()
		addPair(t, o, 0, 10, false)
		synctest.Wait()
		if w.keepalives != 1 || len(w.all()) != 1 {
			t.Fatalf("%d keepalives, %d messages", w.keepalives, len(w.all()))
		}
		o.Close()
		<-done
	})
}

// close waits for a message being sent, drops what is pending, and refuses more.
func TestOutboxClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeConn{gate: make(chan struct{})}
		o := New(nil)
		var progress int
		o.progress = func() { progress++ }
		o.Attach(w)
		done := make(chan struct{})
		go func() { defer close(done); o.Run() }()
		addPair(t, o, 0, 10, false)
		synctest.Wait()
		addPair(t, o, 1, 10, false)
		closed := make(chan struct{})
		go func() { o.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("closed while a message was being sent")
		default:
		}
		w.gate <- struct{}{}
		<-closed
		<-done
		addPair(t, o, 2, 10, true)
		if n := len(w.all()); n != 1 {
			t.Fatalf("%d messages", n)
		}
		if progress == 0 {
			t.Fatal("the owner did not hear of it")
		}
		o.Close()
	})
}

// A stream that fails closes the outbox; adders go on without harm.
func TestOutboxStreamFails(t *testing.T) {
	w := &fakeConn{err: io.EOF}
	o := New(nil)
	o.Attach(w)
	addPair(t, o, 0, 10, true)
	addPair(t, o, 1, 10, true)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.mu.closed || o.mu.bytes != 0 {
		t.Fatalf("closed %v, %d bytes pending", o.mu.closed, o.mu.bytes)
	}
}

// The tail is sent once, and only its newest value.
func TestOutboxTail(t *testing.T) {
	w := new(fakeConn)
	o := New(nil)
	for wall := range uint64(3) {
		p := &peerpb.HostPing{Incarnation: 1, Wall: wall + 5}
		tail := make([]byte, recordSize(p.SizeVT()))
		if err := putRecord(tail, tagPing, p, p.SizeVT()); err != nil {
			t.Fatal(err)
		}
		o.mu.Lock()
		o.mu.tail = tail
		o.UnlockAndSend(true)
	}
	o.Attach(w)
	o.mu.Lock()
	o.UnlockAndSend(true)
	o.mu.Lock()
	o.UnlockAndSend(true)
	messages := w.all()
	batch := new(peerpb.MessageBatch)
	if len(messages) != 1 || batch.UnmarshalVTUnsafe(messages[0]) != nil ||
		batch.Ping.GetWall() != 7 {
		t.Fatalf("%d messages, ping %v", len(messages), batch.Ping)
	}
}

// A message that changes while it is marshalled is an error, and leaves the outbox as it was.
func TestOutboxBadRecord(t *testing.T) {
	o := New(nil)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.AddLocked(tagResponses, badRecord{}, 10); err == nil {
		t.Fatal("no error")
	}
	if o.mu.bytes != 0 {
		t.Fatal(o.mu.bytes)
	}
	if _, err := Prepare(tagResponses, badRecord{}, 10); err == nil {
		t.Fatal("no error")
	}
}

type badRecord struct{}

func (badRecord) SizeVT() int                                { return 10 }
func (badRecord) MarshalToSizedBufferVT([]byte) (int, error) { return 9, nil }

// A connection that was quiet is written to by the goroutine that has a message, and one that was
// not is left to the outbox's.
func TestQuietConnectionIsWrittenToAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := New(nil) // its goroutine does not run
		o.mu.conn = new(fakeConn)
		send := func(direct bool) uint64 {
			o.mu.Lock()
			before := o.mu.sent
			r := &kvpb.Request{Partition: 1}
			if _, err := o.AddLocked(tagRequests, r, r.SizeVT()); err != nil {
				t.Fatal(err)
			}
			o.UnlockAndSend(direct || o.QuietLocked())
			return o.mu.sent - before
		}
		for _, step := range []struct {
			after  time.Duration
			direct bool
			want   uint64
		}{{0, false, 0}, {time.Second, false, 0}, {0, true, 1}, {0, false, 0},
			{DirectPause - 1, false, 0}, {1, false, 1}, {0, false, 0}} {
			time.Sleep(step.after)
			if got := send(step.direct); got != step.want {
				t.Fatalf("%+v: %d messages", step, got)
			}
		}
	})
}

// A message has one tail at most, however much waits: the newest, behind all that waits.
func TestOneTailInAMessage(t *testing.T) {
	o, w := New(nil), &fakeConn{}
	o.Attach(w)
	ping := func(round uint64) []byte {
		tail, err := Encode(tagPing, &peerpb.HostPing{Incarnation: 7, Wall: round})
		if err != nil {
			t.Fatal(err)
		}
		return tail
	}
	o.Lock()
	for range 3 {
		r := &kvpb.Request{Command: &kvpb.Request_Put{
			Put: &kvpb.PutRequest{Key: []byte("k"), Value: make([]byte, MaxFrame/2+1)}}}
		if _, err := o.AddLocked(tagRequests, r, r.SizeVT()); err != nil {
			t.Fatal(err)
		}
	}
	var messages [][]byte
	last := uint64(0) // a tail that was set; the buffers of the pool decide how much one message takes
	for round := uint64(1); len(o.mu.pending) > 0 || o.mu.tail != nil; round++ {
		if round <= 3 && len(o.mu.pending) > 0 {
			o.SetTailLocked(ping(round), round)
			last = round
		}
		o.takeLocked()
		messages = append(messages, bytes.Join(o.parts, nil))
		o.sentLocked(true, nil)
	}
	o.Unlock()
	newest := false
	for i, message := range messages {
		n := 0
		for round := range uint64(3) {
			if bytes.Contains(message, ping(round+1)) {
				n++
				newest = round+1 == last
			}
		}
		if n > 1 || n == 1 && i < len(messages)-1 {
			t.Errorf("message %d of %d has %d tails", i, len(messages), n)
		}
	}
	if !newest {
		t.Error("the newest tail was not sent")
	}
	o.Close()
}

package transport

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Conn is one connection. One goroutine at a time may call Receive and AwaitAccepted, and one Send,
// TrySend and SendKeepalive; the other methods are safe for concurrent use.
type Conn struct {
	socket *socket
	// tlsBuffer and tls are nil without TLS.
	tlsBuffer *tlsBuffer
	tls       *tls.Conn
	// budget is nil without a limit; taken is what the latest message has taken of it.
	budget Budget
	taken  int64
	// proved is set if the opener has proved to know the cluster's secret.
	proved bool
	reader *bufio.Reader

	// frame holds the frame that is being sent, records its TLS records, unsent the bytes still to
	// be written. They belong to the sender.
	frame   []byte
	records []byte
	unsent  []byte
	// failed is the error of the write that failed, if one did. It belongs to the sender.
	failed error

	watch watch
	// ended is the reason why this side broke the connection, if it did.
	ended     atomic.Pointer[error]
	closeOnce sync.Once
	// reads guards the deadline of reads. lingers is set when end begins to wait for the other side.
	reads struct {
		sync.Mutex
		lingers bool
	}
}

// newConn makes a connection on a socket. tlsConn is nil without TLS; otherwise its handshake is
// done, and it writes to buffered.
func newConn(s *socket, tlsConn *tls.Conn, buffered *tlsBuffer) *Conn {
	c := &Conn{socket: s, tlsBuffer: buffered}
	if tlsConn == nil {
		c.reader = bufio.NewReaderSize(s, bufferBytes)
	} else {
		c.tls = tlsConn
		buffered.begin(tlsConn)
		// TLS has a buffer of its own.
		c.reader = bufio.NewReaderSize(tlsConn, sealedBufferBytes)
	}
	return c
}

// Pipe makes two ends of a connection within the process. They do not detect silence.
func Pipe() (*Conn, *Conn) {
	a, b := net.Pipe()
	one, other := newConn(newSocket(a), nil, nil), newConn(newSocket(b), nil, nil)
	one.watch.stop()
	other.watch.stop()
	return one, other
}

// RemoteAddr returns the address of the other side.
func (c *Conn) RemoteAddr() net.Addr { return c.socket.RemoteAddr() }

// Raw returns the connection as it was accepted or dialed.
func (c *Conn) Raw() net.Conn { return c.socket.Conn }

// TLS returns the negotiated state, with the certificates of the other side; nil without TLS.
func (c *Conn) TLS() *tls.ConnectionState {
	if c.tls == nil {
		return nil
	}
	state := c.tls.ConnectionState()
	return &state
}

// Budget is memory that connections share.
type Budget interface {
	// Take takes n bytes. It returns false if they are not available.
	Take(n int64) bool
	// Give returns them.
	Give(n int64)
}

// SetBudget makes received messages take their memory from a budget, except for small ones. The
// memory of the latest message is returned by the next call of Receive, and by GiveBack. The
// goroutine that receives calls SetBudget.
func (c *Conn) SetBudget(b Budget) { c.budget = b }

// GiveBack returns the latest message's memory to the budget. The goroutine that receives calls it.
func (c *Conn) GiveBack() {
	if c.taken > 0 {
		c.budget.Give(c.taken)
		c.taken = 0
	}
}

// Taken returns how many bytes the latest message has taken of the budget. The goroutine that
// receives calls it.
func (c *Conn) Taken() int64 { return c.taken }

func (c *Conn) takeBytes(n int) bool {
	if c.budget == nil {
		return true
	}
	if !c.budget.Take(int64(n)) {
		return false
	}
	c.taken += int64(n)
	return true
}

// Watch breaks the connection when the other side is silent for limit. It calls idle when a
// keepalive is due because nothing was sent for a while. idle must not block, nor send.
func (c *Conn) Watch(limit time.Duration, idle func()) { c.watch.start(c, limit, idle) }

// LimitUnacknowledged breaks the connection when bytes stay unacknowledged by the other side's
// kernel for d, if the system supports that.
func (c *Conn) LimitUnacknowledged(d time.Duration) { c.socket.limitUnacknowledged(d) }

// AwaitAccepted waits until the other side accepts the connection. It returns a *Refused if that
// refuses it.
func (c *Conn) AwaitAccepted() error {
	for {
		content, control, err := readFrame(c.reader, nil)
		switch {
		case err != nil && c.ended.Load() == nil:
			return status.Errorf(codes.Unavailable, "error reading server preface: %v", err)
		case err != nil:
			return c.broken(err)
		case !control:
			return c.broken(errors.New("a message before the connection was accepted"))
		}
		switch content[0] {
		case controlKeepalive:
		case controlAccepted:
			return nil
		case controlRefused:
			return &Refused{reasonOf(content[1:])}
		default:
			return c.broken(fmt.Errorf("control frame %q instead of an answer", content[0]))
		}
	}
}

// Receive returns the next message, whose bytes belong to the caller. io.EOF means that the other
// side sends no more messages, but still receives. Any other error ends the connection, and is a
// gRPC status: with the reason that the other side has sent, or UNAVAILABLE.
func (c *Conn) Receive() ([]byte, error) {
	c.GiveBack()
	for {
		content, control, err := readFrame(c.reader, c.takeBytes)
		if err != nil {
			return nil, c.broken(err)
		}
		if !control {
			return content, nil
		}
		switch content[0] {
		case controlKeepalive:
		case controlHalfClosed:
			return nil, io.EOF
		case controlEnded, controlRefused:
			return nil, reasonOf(content[1:]).Err()
		default:
			return nil, c.broken(fmt.Errorf("unknown control frame %q", content[0]))
		}
	}
}

// broken converts a failure of the connection for its owner.
func (c *Conn) broken(err error) error {
	if ended := c.ended.Load(); ended != nil {
		err = *ended
		if _, ok := status.FromError(err); ok {
			return err
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	if errors.Is(err, errNoMemory) {
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

// Send writes a message that consists of parts, after the rest of the message before. Without parts
// it writes only that rest. It blocks until the kernel has taken everything. An error ends the
// connection: the receiver gets an error too, after the messages that have come, and with the reason
// if the other side has sent one.
func (c *Conn) Send(parts ...[]byte) error {
	if err := c.finish(); err != nil || len(parts) == 0 {
		return err
	}
	if err := c.take(parts); err != nil {
		return err
	}
	return c.finish()
}

// TrySend writes as much of a message as fits into the socket, without blocking; done reports
// whether that was all. If not, Send writes the rest. The message before must be written
// completely.
func (c *Conn) TrySend(parts ...[]byte) (done bool, err error) {
	if c.failed != nil {
		return false, c.failed
	}
	if err := c.take(parts); err != nil {
		return false, err
	}
	n, err := c.socket.writeSome(c.unsent)
	c.unsent = c.unsent[n:]
	if err != nil {
		return false, c.fail(err)
	}
	if len(c.unsent) > 0 {
		return false, nil
	}
	c.written()
	return true, nil
}

// SendKeepalive writes a keepalive, after the rest of a message.
func (c *Conn) SendKeepalive() error { return c.sendControl(controlKeepalive, nil) }

// Accept tells the opener that the connection is accepted. It comes before all messages.
func (c *Conn) Accept() error { return c.sendControl(controlAccepted, nil) }

// CloseSend tells the other side that no more messages will come.
func (c *Conn) CloseSend() error { return c.sendControl(controlHalfClosed, nil) }

func (c *Conn) sendControl(kind byte, content []byte) error {
	if err := c.finish(); err != nil {
		return err
	}
	c.frame = appendControl(c.frame[:0], kind, content)
	c.unsent = c.frame
	if c.tlsBuffer != nil {
		buffered, err := c.tlsBuffer.records(c.frame)
		if err := c.encrypted(buffered, err); err != nil {
			return err
		}
	}
	return c.finish()
}

// take makes a frame of the parts, and from that the bytes to write.
func (c *Conn) take(parts [][]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if c.tlsBuffer != nil {
		return c.encrypted(c.tlsBuffer.frame(parts, size))
	}
	c.frame = withRoom(c.frame[:0], headerBytes+size)
	c.frame = binary.LittleEndian.AppendUint32(c.frame, uint32(size))
	for _, part := range parts {
		c.frame = append(c.frame, part...)
	}
	c.unsent = c.frame
	return nil
}

// encrypted sets the records of a frame as the bytes to write.
func (c *Conn) encrypted(records []byte, err error) error {
	c.records, c.unsent = records, records
	if err != nil {
		return c.fail(err)
	}
	return nil
}

// written releases the buffers when everything is written.
func (c *Conn) written() {
	c.unsent = nil
	c.frame = release(c.frame)
	if c.records != nil {
		c.tlsBuffer.release(c.records)
		c.records = nil
	}
}

// finish writes the unsent bytes.
func (c *Conn) finish() error {
	if c.failed != nil || len(c.unsent) == 0 {
		return c.failed
	}
	if _, err := c.socket.Write(c.unsent); err != nil {
		return c.fail(err)
	}
	c.written()
	return nil
}

// fail ends the connection after a failed write: the other side may have half a message. Writes
// fail, too, when the other side has closed the connection, and its reason may be among the bytes
// that the receiver has not read yet. So the receiver may read for a while.
func (c *Conn) fail(err error) error {
	c.written()
	c.failed = err
	err = status.Error(codes.Unavailable, err.Error())
	c.ended.CompareAndSwap(nil, &err)
	if half, ok := c.socket.Conn.(halfCloser); ok {
		_ = half.CloseWrite()
	}
	time.AfterFunc(lingering, func() { _ = c.Close() })
	return c.failed
}

// Break closes the connection for a reason, which Receive returns.
func (c *Conn) Break(reason error) {
	c.ended.CompareAndSwap(nil, &reason)
	_ = c.Close()
}

// Interrupt makes Receive return a reason, and leaves the connection open for End. A connection
// that End is ending stays as it is.
func (c *Conn) Interrupt(reason error) {
	c.ended.CompareAndSwap(nil, &reason)
	c.reads.Lock()
	defer c.reads.Unlock()
	if !c.reads.lingers {
		_ = c.socket.SetReadDeadline(time.Unix(1, 0))
	}
}

// Close closes the connection at once. The goroutines that send and receive get an error.
func (c *Conn) Close() error {
	var err error
	c.closeOnce.Do(func() {
		c.watch.stop()
		err = c.socket.Close()
	})
	return err
}

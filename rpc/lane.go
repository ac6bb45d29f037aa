package rpc

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// A lane is a connection of its own beside a gRPC stream, for what is small and in a hurry. The stream says who speaks, and lives and
// dies with what watches gRPC's connections; the messages travel on the lane, each as four bytes of length (little endian) and then what
// the stream would have carried. gRPC hands a message from goroutine to goroutine on both sides, and frames it for HTTP/2; on a lane
// the sender's own goroutine writes it to the socket, and the goroutine that reads it handles it. Between processes that share
// two processors this takes a tenth off the processor time of a lone put when Raft's messages travel so, and more than a quarter off the time of a
// lone get when the client's do.
//
// The server offers a lane with a token in the header of the stream. The other side dials the address again, and sends laneHello
// and the token; the server answers laneAccepted. Then the sender half-closes the stream, and the receiver goes over to the lane when it
// has read the stream to that end: the order of messages stays. A lane that cannot be had is no error: the stream carries the messages
// then, as it does until the lane is there. A lane that breaks ends its stream. With TLS no lanes are offered.
//
// INVARIANT: a token is good for one connection, while its stream lives, so a lane has the identity that was checked for the stream.
const (
	// laneHello is how a lane begins. Its first byte begins neither HTTP/2 nor TLS.
	laneHello    = "\x01tidemark-lane\n"
	laneAccepted = 0x06
	laneKey      = "tidemark-lane"
	tokenLength  = 26
	// laneTimeout bounds the making of a lane, and how long bytes that are written to a peer may go unacknowledged by its kernel.
	laneTimeout = 2 * time.Second
	// A lane that broke before it was laneProven old is not tried again for laneRetry: something between the two may not like it.
	laneProven = 10 * time.Second
	laneRetry  = 10 * time.Second
	laneBuffer = 64 << 10
)

// Lanes are the lanes that a gRPC server offers. Make the server with them (ServerConfig.Lanes).
type Lanes struct {
	mu     sync.Mutex
	offers map[string]*laneOffer
}

// laneOffer is what a token is good for.
type laneOffer struct {
	// conn has room for the one connection.
	conn chan net.Conn
	// withdrawn is guarded by the lock of the Lanes.
	withdrawn bool
}

// NewLanes makes an empty set.
func NewLanes() *Lanes { return &Lanes{offers: make(map[string]*laneOffer)} }

// offer gives a token, and where the connection that brings it will come. withdraw ends the offer; it must be called, and closes a
// connection that nobody has taken.
func (l *Lanes) offer() (token string, conn <-chan net.Conn, withdraw func()) {
	token = rand.Text()
	o := &laneOffer{conn: make(chan net.Conn, 1)}
	l.mu.Lock()
	l.offers[token] = o
	l.mu.Unlock()
	return token, o.conn, func() {
		l.mu.Lock()
		o.withdrawn = true
		delete(l.offers, token)
		l.mu.Unlock()
		select {
		case conn := <-o.conn:
			_ = conn.Close()
		default:
		}
	}
}

// accept takes a connection that began with laneHello, or closes it.
func (l *Lanes) accept(conn net.Conn) {
	token := make([]byte, tokenLength)
	_, err := io.ReadFull(conn, token)
	l.mu.Lock()
	o := l.offers[string(token)]
	delete(l.offers, string(token))
	l.mu.Unlock()
	if err != nil || o == nil {
		_ = conn.Close()
		return
	}
	l.mu.Lock()
	withdrawn := o.withdrawn
	if !withdrawn {
		o.conn <- conn
	}
	l.mu.Unlock()
	if withdrawn {
		_ = conn.Close()
		return
	}
	// After it was handed over: when the other side hears of it, the lane is here.
	if _, err := conn.Write([]byte{laneAccepted}); err != nil {
		_ = conn.Close()
	}
}

// laneCredentials lets connections that are lanes out of gRPC.
type laneCredentials struct {
	credentials.TransportCredentials
	lanes *Lanes
}

// Clone implements credentials.TransportCredentials.
func (c laneCredentials) Clone() credentials.TransportCredentials {
	return laneCredentials{c.TransportCredentials.Clone(), c.lanes}
}

// ServerHandshake implements credentials.TransportCredentials. gRPC has set a deadline, and takes it away afterwards.
func (c laneCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, first, err := peek(conn)
	if err != nil {
		return nil, nil, err
	}
	if first != laneHello[0] {
		return c.TransportCredentials.ServerHandshake(conn)
	}
	hello := make([]byte, len(laneHello))
	if _, err := io.ReadFull(conn, hello); err != nil || string(hello) != laneHello {
		return nil, nil, errors.New("neither gRPC nor a lane")
	}
	c.lanes.accept(conn)
	return nil, nil, credentials.ErrConnDispatched
}

// peekedConn is a connection whose first byte was read already.
type peekedConn struct {
	net.Conn
	first []byte
}

func (c *peekedConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// openLane makes a lane.
func (d *Dialer) openLane(ctx context.Context, addr, token string) (net.Conn, error) {
	if d.config.TLS != nil {
		return nil, errors.New("lanes have no TLS")
	}
	ctx, cancel := context.WithTimeout(ctx, laneTimeout)
	defer cancel()
	conn, err := d.config.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	_, err = conn.Write([]byte(laneHello + token))
	if err == nil {
		answer := make([]byte, 1)
		if _, err = io.ReadFull(conn, answer); err == nil && answer[0] != laneAccepted {
			err = errors.New("something else answers there")
		}
	}
	if !stop() {
		return nil, ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("make a lane to %s: %w", addr, err)
	}
	return conn, nil
}

// laneRest is for how long no lane is made to a place, because one broke early. The zero laneRest is over.
type laneRest struct {
	mu    sync.Mutex
	until time.Time
}

func (r *laneRest) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !time.Now().Before(r.until)
}

// broke notes that a lane broke.
func (r *laneRest) broke(made time.Time) {
	now := time.Now()
	if now.Sub(made) >= laneProven {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = now.Add(laneRetry)
}

// laneSender writes messages to a lane. It is for one goroutine at a time.
type laneSender struct {
	conn net.Conn
	buf  []byte
	// rest is the part of buf that is still to be written.
	rest []byte
}

func (s *laneSender) take(f *frame) {
	size := f.size()
	if cap(s.buf) > laneBuffer && size <= laneBuffer {
		s.buf = nil
	}
	s.buf = binary.LittleEndian.AppendUint32(s.buf[:0], uint32(size))
	for _, chunk := range f.chunks {
		s.buf = append(s.buf, *chunk...)
		f.unwritten.Put(chunk)
	}
	s.rest = s.buf
}

// SendMsg implements messageSender. It writes what is left of the message before first; the frame may be empty.
func (s *laneSender) SendMsg(m any) error {
	if err := s.finish(); err != nil {
		return err
	}
	if f := m.(*frame); len(f.chunks) > 0 {
		s.take(f)
		return s.finish()
	}
	return nil
}

func (s *laneSender) finish() error {
	if len(s.rest) == 0 {
		return nil
	}
	_, err := s.conn.Write(s.rest)
	s.rest = nil
	if err != nil {
		// The other side may have half a message, so this is the end of it. Whoever reads from the lane hears of it.
		_ = s.conn.Close()
	}
	return err
}

// trySend writes as much of a message as there is room for in the socket; done says whether that was all. It does not block.
// Nothing may be left of the message before.
func (s *laneSender) trySend(f *frame) (done bool, err error) {
	s.take(f)
	n, err := writeSome(s.conn, s.rest)
	s.rest = s.rest[n:]
	if err != nil {
		_ = s.conn.Close()
	}
	return len(s.rest) == 0, err
}

// readLane calls handle for each message until the lane ends, and gives the reason. The bytes are handle's.
func readLane(conn net.Conn, handle func(message []byte) error) error {
	r := bufio.NewReaderSize(conn, laneBuffer)
	for {
		message, err := nextMessage(r)
		if err != nil {
			return err
		}
		if err := handle(message); err != nil {
			return err
		}
	}
}

// nextMessage reads a message. Its bytes are the caller's.
func nextMessage(r *bufio.Reader) ([]byte, error) {
	length, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(length)
	if size > MaxMessageBytes {
		return nil, fmt.Errorf("a message of %d bytes on a lane; at most %d", size, MaxMessageBytes)
	}
	if _, err := r.Discard(len(length)); err != nil {
		return nil, err
	}
	return readMessage(r, int(size))
}

// readMessage does not believe a length before the bytes are there.
func readMessage(r io.Reader, size int) ([]byte, error) {
	message := make([]byte, min(size, 1<<20))
	_, err := io.ReadFull(r, message)
	for err == nil && len(message) < size {
		have := len(message)
		message = append(message, make([]byte, min(size-have, have))...)
		_, err = io.ReadFull(r, message[have:])
	}
	return message, err
}

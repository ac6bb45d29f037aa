package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// wire delays the bytes on connections, as a distance between machines does. It delays all bytes by
// the same time, in each direction. Bytes that are sent at the same time arrive at the same time,
// on any number of connections.
type wire struct {
	delay time.Duration
	queue chan parcel
	done  chan struct{}
	users sync.WaitGroup
}

// parcel is a message on its way.
type parcel struct {
	due     time.Time
	deliver func()
}

// wireRoom is the maximum number of parcels on their way. Senders of more parcels wait.
const wireRoom = 1024

// newWire makes a wire on which a message and its answer together take trip longer. Close the wire
// after its connections.
func newWire(trip time.Duration) (*wire, error) {
	w := &wire{delay: trip / 2, queue: make(chan parcel, wireRoom), done: make(chan struct{})}
	alarm, err := newAlarm()
	if err != nil {
		return nil, err
	}
	w.users.Go(func() {
		defer alarm.close()
		for {
			select {
			case p := <-w.queue:
				alarm.wait(p.due)
				p.deliver()
			case <-w.done:
				return
			}
		}
	})
	return w, nil
}

func (w *wire) close() {
	close(w.done)
	w.users.Wait()
}

func (w *wire) send(deliver func()) {
	select {
	case w.queue <- parcel{time.Now().Add(w.delay), deliver}:
	case <-w.done:
	}
}

// dial connects through the wire.
func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &farConn{Conn: conn, wire: w}
	c.arrival.L = &c.mu
	w.users.Go(c.receive)
	return c, nil
}

// farConn is a connection over a wire.
type farConn struct {
	net.Conn
	wire    *wire
	mu      sync.Mutex
	arrival sync.Cond
	arrived []byte
	// err is the error after the received bytes.
	err error
}

// receive receives bytes until the connection ends.
func (c *farConn) receive() {
	for err := error(nil); err == nil; {
		b := make([]byte, 16<<10)
		var n int
		n, err = c.Conn.Read(b)
		end := err
		c.wire.send(func() {
			c.mu.Lock()
			c.arrived, c.err = append(c.arrived, b[:n]...), end
			c.mu.Unlock()
			c.arrival.Signal()
		})
	}
}

// Read implements net.Conn.
func (c *farConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.arrived) == 0 && c.err == nil {
		c.arrival.Wait()
	}
	if len(c.arrived) == 0 {
		return 0, c.err
	}
	n := copy(b, c.arrived)
	c.arrived = c.arrived[:copy(c.arrived, c.arrived[n:])]
	return n, nil
}

// Close implements net.Conn.
func (c *farConn) Close() error {
	c.mu.Lock()
	c.err = net.ErrClosed
	c.mu.Unlock()
	c.arrival.Broadcast()
	return c.Conn.Close()
}

// Write implements net.Conn. If bytes cannot be written, the connection ends, and the reader gets
// the error.
func (c *farConn) Write(b []byte) (int, error) {
	sent := append([]byte(nil), b...)
	c.wire.send(func() {
		if _, err := c.Conn.Write(sent); err != nil {
			_ = c.Conn.Close()
		}
	})
	return len(b), nil
}

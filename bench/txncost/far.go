package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// wire delays what travels on connections, as the way between machines does: all of it by the same
// time, in each direction, so that the bytes that are sent at the same time arrive at the same
// time, however many connections they are on.
type wire struct {
	delay time.Duration
	queue chan parcel
	done  chan struct{}
	users sync.WaitGroup
}

// parcel is something that is under way.
type parcel struct {
	due     time.Time
	deliver func()
}

// wireRoom is how many parcels are under way at most; senders of more wait.
const wireRoom = 1024

// newWire makes one on which a message and its answer take trip longer. Close it when its
// connections are closed.
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

// dial connects over the wire.
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
	// err is what comes after that.
	err error
}

// receive takes what comes until the connection ends.
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

// Write implements net.Conn. What cannot be written ends the connection, which the reader hears of.
func (c *farConn) Write(b []byte) (int, error) {
	sent := append([]byte(nil), b...)
	c.wire.send(func() {
		if _, err := c.Conn.Write(sent); err != nil {
			_ = c.Conn.Close()
		}
	})
	return len(b), nil
}

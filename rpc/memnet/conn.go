package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// bufferBytes bounds what one direction of a connection holds.
const bufferBytes = 256 << 10

// pair is a connection: two ends, and a flow from each to the other. flows[i] is written by ends[i]
// and read by ends[1-i].
type pair struct {
	network *Network
	// hosts and ends: 0 dialled, 1 accepted.
	hosts [2]string
	ends  [2]*conn

	mu sync.Mutex
	// cond is signalled whenever anything below changes, or a time that a goroutine waits for has
	// come.
	cond  *sync.Cond
	flows [2]flow
	// broken is set when the connection was reset.
	broken bool
}

// flow is one direction. Guarded by pair.mu.
type flow struct {
	chunks []chunk
	bytes  int
	// stalled is set while the link is cut, so that nothing arrives.
	stalled bool
	latency time.Duration
	// lastReady is when the newest chunk becomes readable; later ones are not readable before it.
	lastReady time.Time
	// writerClosed and readerClosed are set when the end at that side has called Close.
	writerClosed, readerClosed  bool
	readDeadline, writeDeadline deadline
}

// chunk is the data of one Write; without data, it is the end of the flow.
type chunk struct {
	data  []byte
	ready time.Time
}

// deadline wakes the waiting goroutines when its time comes.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newPair(n *Network, from, to string) *pair {
	p := &pair{network: n, hosts: [2]string{host(from), host(to)}}
	p.cond = sync.NewCond(&p.mu)
	for i, local := range []string{from, to} {
		p.ends[i] = &conn{pair: p, side: i, local: address(local)}
		p.flows[i].latency = n.latencyLocked(p.hosts[i], p.hosts[1-i])
		p.flows[i].stalled = n.cutLocked(p.hosts[i], p.hosts[1-i]) != 0
	}
	p.ends[0].remote, p.ends[1].remote = p.ends[1].local, p.ends[0].local
	return p
}

func (p *pair) joins(a, b string) bool {
	return p.hosts == [2]string{a, b} || p.hosts == [2]string{b, a}
}

func (p *pair) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	for i := range p.flows {
		p.flows[i].chunks, p.flows[i].bytes = nil, 0
	}
	p.cond.Broadcast()
}

// wakeAt wakes the waiting goroutines at a time.
func (p *pair) wakeAt(at time.Time) *time.Timer {
	return time.AfterFunc(time.Until(at), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
}

// setLocked sets a deadline; zero is none.
func (d *deadline) setLocked(p *pair, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() && time.Now().Before(at) {
		d.timer = p.wakeAt(at)
	}
	p.cond.Broadcast()
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// conn is one end of a pair.
type conn struct {
	pair          *pair
	side          int
	local, remote address
}

var _ net.Conn = (*conn)(nil)

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.read(b)
	if err != nil && err != io.EOF {
		err = &net.OpError{Op: "read", Net: networkName, Source: c.local, Addr: c.remote, Err: err}
	}
	return n, err
}

func (c *conn) read(b []byte) (int, error) {
	p := c.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &p.flows[1-c.side]
	var timer *time.Timer
	defer func() {
		if timer != nil {
			timer.Stop()
		}
	}()
	for {
		switch {
		case f.readerClosed:
			return 0, net.ErrClosed
		case f.readDeadline.passed():
			return 0, os.ErrDeadlineExceeded
		case p.broken:
			return 0, ErrReset
		case len(b) == 0:
			return 0, nil
		}
		if len(f.chunks) > 0 && !f.stalled {
			first := &f.chunks[0]
			if !time.Now().Before(first.ready) {
				if first.data == nil {
					return 0, io.EOF
				}
				return f.takeLocked(p, b), nil
			}
			if timer == nil {
				timer = p.wakeAt(first.ready)
			} else {
				timer.Reset(time.Until(first.ready))
			}
		}
		p.cond.Wait()
	}
}

// takeLocked moves readable data into b.
func (f *flow) takeLocked(p *pair, b []byte) (n int) {
	now := time.Now()
	for n < len(b) && len(f.chunks) > 0 && f.chunks[0].data != nil && !now.Before(f.chunks[0].ready) {
		moved := copy(b[n:], f.chunks[0].data)
		n += moved
		if f.chunks[0].data = f.chunks[0].data[moved:]; len(f.chunks[0].data) == 0 {
			f.chunks = f.chunks[1:]
		}
	}
	f.bytes -= n
	p.cond.Broadcast()
	return n
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.write(b)
	if err != nil {
		err = &net.OpError{Op: "write", Net: networkName, Source: c.local, Addr: c.remote, Err: err}
	}
	return n, err
}

func (c *conn) write(b []byte) (written int, err error) {
	p := c.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	f, back := &p.flows[c.side], &p.flows[1-c.side]
	for {
		switch {
		case f.writerClosed:
			return written, net.ErrClosed
		case f.writeDeadline.passed():
			return written, os.ErrDeadlineExceeded
		case p.broken, f.readerClosed && !back.stalled && !f.stalled &&
			!time.Now().Before(back.lastReady):
			// If the reader has closed, the writer learns it only if its bytes arrive and the
			// answer comes back, and not before its own reader can see the end: users such as gRPC
			// rely on the reader to notice it, and would try in vain until then.
			return written, ErrReset
		case len(b) == 0:
			return written, nil
		case f.readerClosed:
			return written + len(b), nil // nobody will read it
		}
		if room := bufferBytes - f.bytes; room > 0 {
			n := min(room, len(b))
			f.addLocked(append([]byte(nil), b[:n]...))
			b = b[n:]
			written += n
			p.cond.Broadcast()
			continue
		}
		p.cond.Wait()
	}
}

func (f *flow) addLocked(data []byte) {
	ready := time.Now().Add(f.latency)
	if ready.Before(f.lastReady) {
		ready = f.lastReady
	}
	f.lastReady = ready
	f.chunks = append(f.chunks, chunk{data: data, ready: ready})
	f.bytes += len(data)
}

// Close implements net.Conn. What was written still arrives.
func (c *conn) Close() error {
	p := c.pair
	p.mu.Lock()
	f, back := &p.flows[c.side], &p.flows[1-c.side]
	if f.writerClosed {
		p.mu.Unlock()
		return nil
	}
	f.writerClosed, back.readerClosed = true, true
	f.addLocked(nil)
	back.chunks, back.bytes = nil, 0
	f.writeDeadline.setLocked(p, time.Time{})
	back.readDeadline.setLocked(p, time.Time{})
	both := f.readerClosed && back.writerClosed
	p.cond.Broadcast()
	p.mu.Unlock()
	if both {
		p.network.remove(p)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.pair.mu.Lock()
	defer c.pair.mu.Unlock()
	flow := &c.pair.flows[1-c.side]
	if flow.readerClosed {
		return net.ErrClosed
	}
	flow.readDeadline.setLocked(c.pair, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.pair.mu.Lock()
	defer c.pair.mu.Unlock()
	flow := &c.pair.flows[c.side]
	if flow.writerClosed {
		return net.ErrClosed
	}
	flow.writeDeadline.setLocked(c.pair, t)
	return nil
}

package coord_test

import (
	"net"
	"sync"
)

// proxy is a TCP proxy before the service that can be cut: then no byte gets through, and nothing
// is closed, as when a cable is pulled.
type proxy struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu struct {
		sync.Mutex
		// gate is open if it is closed, as a channel.
		gate   chan struct{}
		isOpen bool
		closed bool
		conns  map[net.Conn]struct{}
	}
}

// proxied starts a proxy; it ends with the test.
func (w *world) proxied() *proxy {
	w.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	p := &proxy{listener: listener, to: endpoints[0]}
	p.mu.conns = make(map[net.Conn]struct{})
	p.mu.gate, p.mu.isOpen = make(chan struct{}), true
	close(p.mu.gate)
	p.running.Go(p.accept)
	w.Cleanup(p.close)
	return p
}

func (p *proxy) endpoints() []string { return []string{p.listener.Addr().String()} }

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			from.Close()
			continue
		}
		if !p.add(from, to) {
			return
		}
		p.running.Go(func() { p.copy(to, from) })
		p.running.Go(func() { p.copy(from, to) })
	}
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.mu.conns[c] = struct{}{}
		if p.mu.closed {
			c.Close()
		}
	}
	return !p.mu.closed
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		gate := p.mu.gate
		p.mu.Unlock()
		<-gate
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// cut lets nothing through any more.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.isOpen && !p.mu.closed {
		p.mu.gate, p.mu.isOpen = make(chan struct{}), false
	}
}

// mend closes the connections that were cut, and lets new ones through.
func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.mu.conns {
		c.Close()
	}
	clear(p.mu.conns)
	p.openLocked()
}

func (p *proxy) openLocked() {
	if !p.mu.isOpen {
		close(p.mu.gate)
		p.mu.isOpen = true
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.mu.closed = true
	for c := range p.mu.conns {
		c.Close()
	}
	p.openLocked()
	p.mu.Unlock()
	p.listener.Close()
	p.running.Wait()
}

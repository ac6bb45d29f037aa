package links

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// Proxies is a Network of TCP proxies on loopback. See the package's comment.
type Proxies struct {
	addresses []Address
	listeners []net.Listener
	ctx       context.Context
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu struct {
		sync.Mutex
		shapes shapes
		// changed is closed and replaced when shapes change.
		changed chan struct{}
		pids    map[Host]int
	}
}

// NewProxies starts a proxy for each of a number of servers.
func NewProxies(servers int) (*Proxies, error) {
	free, err := process.FreeAddresses(2 * servers)
	if err != nil {
		return nil, err
	}
	p := &Proxies{}
	p.mu.shapes, p.mu.changed, p.mu.pids = shapes{}, make(chan struct{}), make(map[Host]int)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for i := range servers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.listeners = append(p.listeners, listener)
		p.addresses = append(p.addresses, Address{Listen: free[i], HTTP: free[servers+i],
			Advertise: listener.Addr().String()})
	}
	for i, listener := range p.listeners {
		p.running.Go(func() { p.accept(Host(i), listener) })
	}
	return p, nil
}

// Kind implements Network.
func (*Proxies) Kind() string { return "loopback, with a TCP proxy before each server" }

// Address implements Network.
func (p *Proxies) Address(server Host) Address { return p.addresses[server] }

// Command implements Network.
func (*Proxies) Command(_ Host, path string, args []string) (string, []string) { return path, args }

// Started implements Network.
func (p *Proxies) Started(server Host, pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.pids[server] = pid
}

// Set implements Network.
func (p *Proxies) Set(changed map[Link]Shape) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.shapes.merge(changed)
	close(p.mu.changed)
	p.mu.changed = make(chan struct{})
	return nil
}

// Close implements Network.
func (p *Proxies) Close() error {
	p.cancel()
	var failures []error
	for _, listener := range p.listeners {
		failures = append(failures, listener.Close())
	}
	p.running.Wait()
	return errors.Join(failures...)
}

// shape returns the shape of a link, and a channel that is closed when the shape may have changed.
func (p *Proxies) shape(l Link) (Shape, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.shapes[l], p.mu.changed
}

func (p *Proxies) accept(server Host, listener net.Listener) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.carry(server, connection) })
	}
}

// from returns the host that made a connection: the server that owns the connection's socket, or
// otherwise the clients.
func (p *Proxies) from(connection net.Conn) Host {
	p.mu.Lock()
	pids := maps.Clone(p.mu.pids)
	p.mu.Unlock()
	address, ok := connection.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return Clients
	}
	if h, ok := ownerOf(address.Port, pids); ok {
		return h
	}
	return Clients
}

// carry copies the bytes of a connection in both directions until either end is closed.
func (p *Proxies) carry(server Host, incoming net.Conn) {
	defer incoming.Close()
	client := p.from(incoming)
	there, back := Link{client, server}, Link{server, client}
	if !p.pass(p.ctx, there) {
		return
	}
	outgoing, err := net.DialTimeout("tcp", p.addresses[server].Listen, 5*time.Second)
	if err != nil {
		return
	}
	defer outgoing.Close()
	ctx, cancel := context.WithCancel(p.ctx)
	// The end of either direction ends the connection.
	stop := context.AfterFunc(ctx, func() { incoming.Close(); outgoing.Close() })
	defer stop()
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(ctx, cancel, there, incoming, outgoing) })
	pumps.Go(func() { p.pump(ctx, cancel, back, outgoing, incoming) })
	pumps.Wait()
}

// pass waits until a link is not cut. It returns false if the connection must be broken instead.
func (p *Proxies) pass(ctx context.Context, l Link) bool {
	for {
		shape, changed := p.shape(l)
		switch {
		case !shape.Cut:
			return true
		case shape.Refused:
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// pump copies bytes over a link. If the link is slow, the bytes arrive later. pump ends when ctx
// ends. It cancels ctx when it ends for another reason.
func (p *Proxies) pump(ctx context.Context, cancel context.CancelFunc, l Link, from io.Reader,
	to io.Writer) {
	on := newLine()
	var writer sync.WaitGroup
	defer writer.Wait()
	defer cancel()
	writer.Go(func() {
		defer cancel()
		_ = on.deliver(ctx, func(data []byte) error {
			if !p.pass(ctx, l) {
				return fmt.Errorf("link %v is cut", l)
			}
			_, err := to.Write(data)
			return err
		})
	})
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			shape, _ := p.shape(l)
			select {
			case on.queue <- delayed{on.due(time.Now(), shape), buffer[:n]}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

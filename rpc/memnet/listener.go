package memnet

import (
	"net"
	"sync"
)

const (
	networkName = "memnet"
	// backlog is how many connections wait to be accepted.
	backlog = 128
)

// address is a net.Addr.
type address string

func (address) Network() string  { return networkName }
func (a address) String() string { return string(a) }

type listener struct {
	network  *Network
	addr     string
	incoming chan *conn
	once     sync.Once
	closed   chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed: // first, so that nothing is accepted after Close
		return nil, l.closedError()
	default:
	}
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, l.closedError()
	}
}

func (l *listener) closedError() error {
	return &net.OpError{Op: "accept", Net: networkName, Addr: address(l.addr), Err: net.ErrClosed}
}

// Close implements net.Listener. Connections that were not accepted are reset.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, l.addr)
		l.network.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.incoming:
				l.network.remove(c.pair)
				c.pair.reset()
				continue
			default:
			}
			return
		}
	})
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address(l.addr) }

package isolation

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Network makes connections over TCP between servers, which are identified by their addresses. The
// zero Network is ready for use. Safe for concurrent use.
type Network struct {
	mu  sync.Mutex
	cut map[string]bool
	// open holds the open connections.
	open map[*conn]struct{}
}

// conn is a connection from one address to another.
type conn struct {
	net.Conn
	of       *Network
	from, to string
}

// Dialer returns the dial function for a server at an address. An address that is not a server's,
// such as "", stands for a client.
func (n *Network) Dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		if err := n.refuses(from, to); err != nil {
			return nil, err
		}
		var dialer net.Dialer
		plain, err := dialer.DialContext(ctx, "tcp", to)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: plain, of: n, from: from, to: to}
		n.mu.Lock()
		if n.open == nil {
			n.open = map[*conn]struct{}{}
		}
		n.open[c] = struct{}{}
		n.mu.Unlock()
		// A Cut during the dial has not ended this connection.
		if err := n.refuses(from, to); err != nil {
			_ = c.Close()
			return nil, err
		}
		return c, nil
	}
}

func (n *Network) refuses(from, to string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if from != to && (n.cut[from] || n.cut[to]) {
		return fmt.Errorf("%s cannot be reached: the network is cut", to)
	}
	return nil
}

// Cut ends all connections of a server with others, and refuses new ones until Join.
func (n *Network) Cut(address string) {
	n.mu.Lock()
	if n.cut == nil {
		n.cut = map[string]bool{}
	}
	n.cut[address] = true
	var ended []*conn
	for c := range n.open {
		if c.from != c.to && (c.from == address || c.to == address) {
			ended = append(ended, c)
		}
	}
	n.mu.Unlock()
	for _, c := range ended {
		_ = c.Close()
	}
}

// Join undoes Cut.
func (n *Network) Join(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, address)
}

// IsCut reports whether a server is disconnected.
func (n *Network) IsCut(address string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[address]
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

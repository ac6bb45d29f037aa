package rpc

import (
	"net"
	"sync"

	"github.com/tidemarkdb/tidemark/rpc/quota"
)

const (
	// grantedConnections is how many connections a host may have whatever its share.
	maxConnections     = 4096
	grantedConnections = 32
)

// sharedListener gives each connection a place among those of its host.
type sharedListener struct {
	net.Listener
	places *quota.Places
	lost   func()
}

// Accept implements net.Listener. Connections for which there is no place are closed.
func (l *sharedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		lose := func() {
			l.lost()
			_ = raw.Close()
		}
		if place := l.places.Enter(partyOfAddress(raw.RemoteAddr()), lose); place != nil {
			return inPlace(raw, &placed{place: place}), nil
		}
		lose()
	}
}

// inPlace is a connection with its place.
func inPlace(raw net.Conn, c *placed) net.Conn {
	if tcp, ok := raw.(*net.TCPConn); ok {
		return &placedTCP{tcp, c}
	}
	return &placedConn{raw, c}
}

// placed is the place of a connection.
type placed struct {
	place *quota.Place
	once  sync.Once
}

// exempt gives the place back: the connection is a server's, and counts no longer.
func (p *placed) exempt() { p.once.Do(p.place.Leave) }

// placedTCP is a TCP connection in its place. What else can be done with one can be done with it.
type placedTCP struct {
	*net.TCPConn
	*placed
}

// Close implements net.Conn.
func (c *placedTCP) Close() error {
	c.exempt()
	return c.TCPConn.Close()
}

// placedConn is any other.
type placedConn struct {
	net.Conn
	*placed
}

// Close implements net.Conn.
func (c *placedConn) Close() error {
	c.exempt()
	return c.Conn.Close()
}

// exempt takes a server's connection out of those that hosts share.
func exempt(raw net.Conn) {
	if p, ok := raw.(interface{ exempt() }); ok {
		p.exempt()
	}
}

package limit

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/nonblock"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

const (
	// grantedConnections is how many connections a host may have whatever its share.
	maxConnections     = 4096
	grantedConnections = 32
	// overdueAfter is how far a host may be ahead that is to get another connection, and
	// overdueConnections how many it has then that gets none: more than servers have to each other.
	overdueAfter       = time.Second
	overdueConnections = 2 * grantedConnections
	// dropped is for how long a connection that was refused stays open, and mostDropped how many are
	// open at a time: its opener waits before it tries again, and others wait for nothing.
	dropped     = 50 * time.Millisecond
	mostDropped = 256
	// dropsAtATime is how many are refused before the listener rests, for dropsRest: refusing as fast
	// as a host can connect would take a processor from requests. Others' new connections wait for
	// 12,000 of such a host's in a second.
	dropsAtATime = 16
	dropsRest    = time.Millisecond
)

// PlaceSettled is how long a connection or stream is not displaced.
const PlaceSettled = 10 * time.Second

// ConnectionPlaces are places for so many connections (default 4096), which hosts share.
func ConnectionPlaces(connections int) *quota.Places {
	if connections <= 0 {
		connections = maxConnections
	}
	return quota.NewPlaces(connections, grantedConnections, PlaceSettled)
}

// NewListener makes a listener whose connections take places, and processors' time by shares unless
// pace is nil. lost is told of each connection for which there was no place, or is none any more,
// paused how long a connection has to pause.
func NewListener(l net.Listener, places *quota.Places, pace *quota.Pace, lost func(),
	paused func(time.Duration)) net.Listener {
	return &sharedListener{Listener: l, places: places, pace: pace, lost: lost, paused: paused}
}

// ShareListener makes a listener whose connections take places, so many, and processors' time by
// shares, as those of a Server do. pace may be nil.
func ShareListener(l net.Listener, connections int, pace *quota.Pace) net.Listener {
	return &sharedListener{Listener: l, pace: pace, trusting: true,
		places: ConnectionPlaces(connections),
		lost:   func() {}, paused: func(time.Duration) {}}
}

// sharedListener gives each connection a place among those of its host.
type sharedListener struct {
	net.Listener
	places *quota.Places
	pace   *quota.Pace
	lost   func()
	// paused is told how long a connection has to pause.
	paused func(time.Duration)
	// trusting: every connection is taken to be of use.
	trusting bool
	// drops counts the connections of overdue hosts.
	drops atomic.Int64
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
		host := authn.PrincipalOfAddress(raw.RemoteAddr())
		if l.overdue(host) {
			l.lost()
			dropLater(raw)
			if l.drops.Add(1)%dropsAtATime == 0 {
				time.Sleep(dropsRest)
			}
			continue
		}
		if place := l.places.Enter(host, lose); place != nil {
			pace := l.pacer(host)
			pace.open()
			return inPlace(raw, &placed{place: place}, pace), nil
		}
		lose()
	}
}

// overdue says that a host gets no more connections for now: it has to wait, and has many
// connections already, which do.
func (l *sharedListener) overdue(host string) bool {
	return l.pace != nil && l.pace.Ahead(host, time.Now()) > overdueAfter &&
		l.places.HeldBy(host) >= overdueConnections
}

// dropping counts the connections that are to be closed.
var dropping atomic.Int32

// dropLater closes a connection in a moment, or at once if there are many of them.
func dropLater(raw net.Conn) {
	if dropping.Add(1) > mostDropped {
		dropping.Add(-1)
		_ = raw.Close()
		return
	}
	time.AfterFunc(dropped, func() {
		dropping.Add(-1)
		_ = raw.Close()
	})
}

// pacer paces a host's connection; nil: it is not paced.
func (l *sharedListener) pacer(host string) *ConnThrottle {
	if l.pace == nil {
		return nil
	}
	c := &ConnThrottle{pace: l.pace, of: host, paused: l.paused, closed: make(chan struct{})}
	c.useful.Store(l.trusting)
	return c
}

// inPlace is a connection with its place.
func inPlace(raw net.Conn, c *placed, pace *ConnThrottle) net.Conn {
	if tcp, ok := raw.(*net.TCPConn); ok {
		return &placedTCP{nonblock.New(tcp), c, pace}
	}
	return &placedConn{raw, c}
}

// placed is the place of a connection.
type placed struct {
	place *quota.Place
	once  sync.Once
	// handed: the connection is not gRPC's any more, whose deadlines do not count then.
	handed atomic.Bool
}

// leave gives the place back.
func (p *placed) leave() { p.once.Do(p.place.Leave) }

// exempt says that the connection is a server's, and counts no longer.
func (p *placed) exempt() { p.leave() }

// placedTCP is a TCP connection in its place. What else can be done with one can be done with it.
type placedTCP struct {
	*nonblock.Conn
	*placed
	// pace is nil without.
	pace *ConnThrottle
}

// Read implements net.Conn.
func (c *placedTCP) Read(b []byte) (int, error) {
	if c.pace != nil {
		b = b[:c.pace.most(len(b))]
	}
	n, err := c.Conn.Read(b)
	if err == nil && c.pace != nil {
		c.pace.read(n, c.Waited())
	}
	return n, err
}

// exempt implements what exempt asks for.
func (c *placedTCP) exempt() {
	c.leave()
	if c.pace != nil {
		c.pace.exempt.Store(true)
	}
}

// Close implements net.Conn.
func (c *placedTCP) Close() error {
	c.leave()
	if c.pace != nil {
		c.pace.close()
	}
	return c.Conn.Close()
}

// placedConn is any other.
type placedConn struct {
	net.Conn
	*placed
}

// Close implements net.Conn.
func (c *placedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// SetDeadline implements net.Conn, for gRPC's handshake.
func (c *placedTCP) SetDeadline(t time.Time) error {
	if c.handed.Load() {
		return nil
	}
	return c.Conn.SetDeadline(t)
}

// SetDeadline implements net.Conn, for gRPC's handshake.
func (c *placedConn) SetDeadline(t time.Time) error {
	if c.handed.Load() {
		return nil
	}
	return c.Conn.SetDeadline(t)
}

// hand has what gRPC sets as a deadline from now on not count.
func (p *placed) hand() { p.handed.Store(true) }

// HandOver hands a connection over from gRPC, which takes away the deadline of its handshake when
// that returns: later than another deadline may have been set by then.
func HandOver(conn, raw net.Conn, to func(net.Conn)) {
	_ = raw.SetDeadline(time.Time{})
	if p, ok := raw.(interface{ hand() }); ok {
		p.hand()
	}
	if p := ThrottleOf(raw); p != nil {
		p.calls.Store(true)
		p.Use()
	}
	to(conn)
}

// Exempt takes a server's connection out of those among which hosts share.
func Exempt(raw net.Conn) {
	if p, ok := raw.(interface{ exempt() }); ok {
		p.exempt()
	}
}

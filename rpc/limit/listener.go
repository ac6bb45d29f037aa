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
	// A client that has to wait for more than overdueAfter, and has overdueConnections, which is more
	// than servers have to each other, gets no further connection.
	overdueAfter       = time.Second
	overdueConnections = 2 * grantedConnections
	// refusedFor is how long a connection that was refused stays open, so that its opener waits
	// before it tries again; mostRefused is how many are open at a time, some MiB.
	refusedFor  = 50 * time.Millisecond
	mostRefused = 256
	// refusalRest is how long the listener rests after each refusal beyond these: to refuse as fast
	// as a client can connect would take half a processor from requests.
	refusalRest = 50 * time.Microsecond
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

// NewListener makes a listener whose connections take places, and have their clients charged for
// processor time unless cpu is nil. lost is told of each connection for which there was no place,
// or whose place another one took, paused of each wait.
func NewListener(l net.Listener, places *quota.Places, cpu *quota.CPULimiter, lost func(),
	paused func(time.Duration)) net.Listener {
	return &sharedListener{Listener: l, places: places, cpu: cpu, lost: lost, paused: paused}
}

// ShareListener makes a listener as NewListener does, with places for so many connections, whose
// connections may end without an answer.
func ShareListener(l net.Listener, connections int, cpu *quota.CPULimiter) net.Listener {
	return &sharedListener{Listener: l, cpu: cpu, trusting: true,
		places: ConnectionPlaces(connections),
		lost:   func() {}, paused: func(time.Duration) {}}
}

// sharedListener gives each connection a place among those of its client.
type sharedListener struct {
	net.Listener
	places *quota.Places
	cpu    *quota.CPULimiter
	lost   func()
	paused func(time.Duration)
	// trusting: every connection is taken to be of use.
	trusting bool
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
			refuse(raw)
			continue
		}
		if place := l.places.Enter(host, lose); place != nil {
			throttle := l.throttle(host)
			throttle.open()
			return inPlace(raw, &placed{place: place}, throttle), nil
		}
		lose()
	}
}

// overdue says that a client gets no more connections for now: it has to wait, and has many
// connections already, which do.
func (l *sharedListener) overdue(host string) bool {
	return l.cpu != nil && l.cpu.Delay(host, time.Now()) > overdueAfter &&
		l.places.HeldBy(host) >= overdueConnections
}

// refusing counts the connections that are refused and not closed yet.
var refusing atomic.Int32

// refuse closes a connection in a moment, or at once if there are many such.
func refuse(raw net.Conn) {
	if refusing.Add(1) > mostRefused {
		refusing.Add(-1)
		_ = raw.Close()
		time.Sleep(refusalRest)
		return
	}
	time.AfterFunc(refusedFor, func() {
		refusing.Add(-1)
		_ = raw.Close()
	})
}

// throttle makes the throttle of a client's connection; nil: it has none.
func (l *sharedListener) throttle(host string) *ConnThrottle {
	if l.cpu == nil {
		return nil
	}
	c := &ConnThrottle{cpu: l.cpu, of: host, paused: l.paused, closed: make(chan struct{})}
	c.useful.Store(l.trusting)
	return c
}

// inPlace is a connection with its place.
func inPlace(raw net.Conn, c *placed, throttle *ConnThrottle) net.Conn {
	if tcp, ok := raw.(*net.TCPConn); ok {
		return &placedTCP{nonblock.New(tcp), c, throttle}
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
	// throttle is nil without a limiter.
	throttle *ConnThrottle
}

// Read implements net.Conn.
func (c *placedTCP) Read(b []byte) (int, error) {
	if c.throttle != nil {
		b = b[:c.throttle.most(len(b))]
	}
	n, err := c.Conn.Read(b)
	if err == nil && c.throttle != nil {
		c.throttle.read(n, c.Waited())
	}
	return n, err
}

// exempt implements what exempt asks for.
func (c *placedTCP) exempt() {
	c.leave()
	if c.throttle != nil {
		c.throttle.exempt.Store(true)
	}
}

// Close implements net.Conn.
func (c *placedTCP) Close() error {
	c.leave()
	if c.throttle != nil {
		c.throttle.close()
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

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
	// A client whose wait exceeds overdueAfter and that has overdueConnections, which is more than
	// servers open to each other, gets no further connection.
	overdueAfter       = time.Second
	overdueConnections = 2 * grantedConnections
	// refusedFor is how long a refused connection stays open, so that its opener waits before it
	// tries again. mostRefused bounds the connections that stay open this way, which takes some
	// MiB.
	refusedFor  = 50 * time.Millisecond
	mostRefused = 256
	// refusalRest is how long the listener pauses after each refusal beyond mostRefused: refusing
	// as fast as a client can connect would take half a processor from requests.
	refusalRest = 50 * time.Microsecond
)

// PlaceSettled is how long a connection or stream keeps its place at least.
const PlaceSettled = 10 * time.Second

// ConnectionPlaces returns places for that many connections (default 4096), shared by hosts.
func ConnectionPlaces(connections int) *quota.Places {
	if connections <= 0 {
		connections = maxConnections
	}
	return quota.NewPlaces(connections, grantedConnections, PlaceSettled)
}

// NewListener returns a listener whose connections take places, and whose clients are charged for
// processor time unless cpu is nil. lost is called for each connection for which there was no
// place, or whose place another one took; paused for each wait.
func NewListener(l net.Listener, places *quota.Places, cpu *quota.CPULimiter, lost func(),
	paused func(time.Duration)) net.Listener {
	return &sharedListener{Listener: l, places: places, cpu: cpu, lost: lost, paused: paused}
}

// ShareListener is NewListener with new places, for connections that may end without an answer.
func ShareListener(l net.Listener, connections int, cpu *quota.CPULimiter) net.Listener {
	return &sharedListener{Listener: l, cpu: cpu, trusting: true,
		places: ConnectionPlaces(connections),
		lost:   func() {}, paused: func(time.Duration) {}}
}

// sharedListener gives each connection one of its client's places.
type sharedListener struct {
	net.Listener
	places *quota.Places
	cpu    *quota.CPULimiter
	lost   func()
	paused func(time.Duration)
	// trusting is set if every connection counts as useful.
	trusting bool
}

// Accept implements net.Listener. It closes connections for which there is no place.
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

// overdue reports that a client gets no more connections for now, because it must wait and has many
// connections already.
func (l *sharedListener) overdue(host string) bool {
	return l.cpu != nil && l.cpu.Delay(host, time.Now()) > overdueAfter &&
		l.places.HeldBy(host) >= overdueConnections
}

// refusing counts the refused connections that are not closed yet.
var refusing atomic.Int32

// refuse closes a connection after refusedFor, or at once if there are many refused ones.
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

// throttle returns the throttle of a client's connection; nil without a limiter.
func (l *sharedListener) throttle(host string) *ConnThrottle {
	if l.cpu == nil {
		return nil
	}
	c := &ConnThrottle{cpu: l.cpu, of: host, paused: l.paused, closed: make(chan struct{})}
	c.useful.Store(l.trusting)
	return c
}

// inPlace wraps a connection with its place.
func inPlace(raw net.Conn, c *placed, throttle *ConnThrottle) net.Conn {
	if tcp, ok := raw.(*net.TCPConn); ok {
		return &placedTCP{nonblock.New(tcp), c, throttle}
	}
	return &placedConn{raw, c}
}

// placed is a connection's hold on a place.
type placed struct {
	place *quota.Place
	once  sync.Once
	// handed is set when gRPC has handed the connection over. gRPC's deadlines are ignored then.
	handed atomic.Bool
}

// leave returns the place.
func (p *placed) leave() { p.once.Do(p.place.Leave) }

// exempt returns the place because the connection is a server's.
func (p *placed) exempt() { p.leave() }

// placedTCP is a TCP connection with a place. It keeps the methods of a TCP connection.
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

// exempt is called by Exempt.
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

// placedConn is any other connection with a place.
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

// hand makes the connection ignore gRPC's deadlines from now on.
func (p *placed) hand() { p.handed.Store(true) }

// HandOver takes a connection from gRPC and passes it to a function. gRPC clears the deadline of
// its handshake when that returns, which may be after the new owner has set another deadline, so
// gRPC's calls are ignored.
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

// Exempt takes a server's connection out of those that hosts share.
func Exempt(raw net.Conn) {
	if p, ok := raw.(interface{ exempt() }); ok {
		p.exempt()
	}
}

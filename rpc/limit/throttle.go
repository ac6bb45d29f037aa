package limit

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A client is charged for what it has a server do by about how much processor time that takes: not
// by what was measured, which is longer when processors are short, and so would slow down all
// clients. What a client that has to wait sends is read later, and the kernel makes the client wait
// in its turn.
//
// Nor does a connection's reader go on for long while there is something to read, before others
// that can run: Go by itself takes 10 ms for a turn, and requests of other connections would wait
// so long for each of those.
//
// The costs are processor time on a machine of 2026, measured once and rounded. They need not be
// right, as all clients are charged by the same ones.
const (
	// costOfConnection is to begin a connection, with TLS.
	costOfConnection = 300 * time.Microsecond
	// costOfByte is to receive and decode a byte, and costOfCallByte a byte on a connection of gRPC,
	// where a call of a hundred bytes takes 5 us.
	costOfByte     = 5 * time.Nanosecond
	costOfCallByte = 50 * time.Nanosecond
	// costOfMessage is to take a message of requests and send its answer, costOfRequest to decode and
	// evaluate one of its requests, costOfPart to do so with one part of a request.
	costOfMessage = 10 * time.Microsecond
	costOfRequest = 5 * time.Microsecond
	costOfPart    = 150 * time.Nanosecond

	// penaltyOfConnection is for a connection that ends without having had an answer, penaltyOfCall
	// for a call of gRPC that ends before its message has come, or is refused to its user: 30 and 40
	// times what these take, so that no client makes many of them.
	penaltyOfConnection = 10 * time.Millisecond
	penaltyOfCall       = 2 * time.Millisecond
	// penaltyOfByte is for each byte of calls of gRPC that are incomplete, of a connection that has
	// more than largeIncomplete bytes of them. It stands for putting the message together, which
	// nothing can interrupt.
	penaltyOfByte   = 20 * time.Nanosecond
	largeIncomplete = 256 << 10
	// penaltyOfLarge is how many times its cost a message of many parts has as a penalty: of what a
	// client that writes much has a server do, decoding is no more than a hundredth.
	penaltyOfLarge = 16

	// turn is for how long a reader goes on before others go first: some 20 messages.
	turn = 250 * time.Microsecond
	// othersWait is for how long others have to have waited, when they went first, to have a reader
	// of something large rest: longer than it takes to find out that nobody waits.
	othersWait = 50 * time.Microsecond
	// largeRest is the rest, the shortest for which a timer can be relied on.
	largeRest = time.Millisecond
)

// NewCPULimiter makes the limiter that all ports of a process share.
func NewCPULimiter() *quota.CPULimiter {
	return quota.NewCPULimiter(runtime.GOMAXPROCS(0), new(scheduling).short)
}

// ConnThrottle charges a client for what comes on one of its connections, and has the connection
// wait.
type ConnThrottle struct {
	cpu *quota.CPULimiter
	// of is the client.
	of     string
	paused func(time.Duration)
	// exempt: it is a server's. calls: it is one of gRPC. useful: an answer was sent on it.
	// unverified: the client was so when it was charged last.
	exempt, calls, useful, unverified atomic.Bool
	// peer: it carries messages of peers, which wait for no turn.
	peer atomic.Bool
	// since is when the goroutine that reads began its turn, after turnsFrom.
	since atomic.Int64
	// delay is for how long the next read waits, for what was charged since the last one.
	delay  atomic.Int64
	closed chan struct{}
	once   sync.Once
}

// turnsFrom is when times of turns begin.
var turnsFrom = time.Now()

// open is called once, before the connection is used. A connection on which nothing comes costs as
// much: processor time is taken by accepting it, by its goroutine and buffers, and by closing it.
func (c *ConnThrottle) open() { c.charge(costOfConnection) }

// read is called with how many bytes were read, by the goroutine that reads, and whether it had to
// wait for them.
func (c *ConnThrottle) read(n int, waited bool) {
	if c.exempt.Load() {
		return
	}
	costs := costOfByte
	if c.calls.Load() {
		costs = costOfCallByte
	}
	costs *= time.Duration(n)
	now := time.Now()
	if waited {
		c.begin(now)
	}
	c.chargeAt(costs, now)
	c.between()
}

// charge adds costs of what was read: between, or the next read, waits for them.
func (c *ConnThrottle) charge(costs time.Duration) {
	if c != nil && !c.exempt.Load() {
		c.chargeAt(costs, time.Now())
	}
}

func (c *ConnThrottle) chargeAt(costs time.Duration, now time.Time) {
	wait, verified := c.cpu.Charge(c.of, costs, now)
	c.delay.Store(int64(wait))
	if verified == c.unverified.Load() {
		c.unverified.Store(!verified)
	}
}

// between is called by the goroutine that reads, between two things that it does for the
// connection: it waits if the client has to, and otherwise lets others go first if its turn is
// over.
func (c *ConnThrottle) between() {
	if c == nil || c.exempt.Load() {
		return
	}
	if wait := time.Duration(c.delay.Swap(0)); wait > 0 {
		c.paused(wait)
		c.wait(wait)
		c.begin(time.Now())
		return
	}
	c.yield(false)
}

// Rest is called between two parts of something large, by the goroutine that reads: others go first
// if its turn is over, and if others have waited meanwhile, it goes on only after a rest.
func (c *ConnThrottle) Rest() {
	if c != nil && !c.exempt.Load() {
		c.yield(true)
	}
}

func (c *ConnThrottle) yield(rests bool) {
	now := time.Now()
	took := now.Sub(turnsFrom) - time.Duration(c.since.Load())
	if c.peer.Load() || took <= turn {
		return
	}
	runtime.Gosched()
	// A turn that took long was interrupted by other processes, or by the collector of garbage.
	if rests && (time.Since(now) > othersWait || took > 4*turn) {
		c.wait(largeRest)
	}
	c.begin(time.Now())
}

// begin begins the turn of the goroutine that reads.
func (c *ConnThrottle) begin(now time.Time) { c.since.Store(int64(now.Sub(turnsFrom))) }

// wait waits, at most until the connection is closed.
func (c *ConnThrottle) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// penalize has the client wait for what is useless or harmful.
func (c *ConnThrottle) penalize(d time.Duration) {
	if c != nil && !c.exempt.Load() {
		c.cpu.Penalize(c.of, d, time.Now())
	}
}

// PenalizeUseless has the client wait for a connection that ends without use.
func (c *ConnThrottle) PenalizeUseless() { c.penalize(penaltyOfConnection) }

// ChargeMessage charges for a message of requests, which takes so many bytes when it is decoded,
// and lets others go first. many: most of these bytes are of its parts.
func (c *ConnThrottle) ChargeMessage(decoded int, many bool) {
	costs := costOfMessage + time.Duration(decoded/wire.PartBytes)*costOfPart
	if many {
		c.penalize(penaltyOfLarge * costs)
	}
	c.charge(costs)
	c.between()
}

// ChargeRequests charges for requests, and for the parts of the calls among them.
func (c *ConnThrottle) ChargeRequests(requests, parts int) {
	c.charge(time.Duration(requests)*costOfRequest + time.Duration(parts)*costOfPart)
}

// Use notes an answer on the connection: it is of use, and its client is verified.
func (c *ConnThrottle) Use() {
	if c == nil {
		return
	}
	if !c.useful.Load() {
		c.useful.Store(true)
	}
	if c.unverified.Load() && c.unverified.CompareAndSwap(true, false) {
		c.cpu.Verify(c.of, time.Now())
	}
}

// most is how many bytes one read of a connection gives at most. While processors are short, gRPC's
// reader, which does not call between, gets no more at a time than it takes a turn to decode.
func (c *ConnThrottle) most(n int) int {
	if c.calls.Load() && c.cpu.Short() && !c.exempt.Load() {
		return min(n, int(turn/costOfCallByte))
	}
	return n
}

// Over says that the connection is closed: what was read of it before is no longer worth anything.
func (c *ConnThrottle) Over() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// close ends waiting.
func (c *ConnThrottle) close() {
	c.once.Do(func() {
		close(c.closed)
		if !c.useful.Load() {
			c.PenalizeUseless()
		}
	})
}

// ThrottleOf is the throttle of a connection; nil: it has none.
func ThrottleOf(raw net.Conn) *ConnThrottle {
	if c, ok := raw.(*placedTCP); ok {
		return c.throttle
	}
	return nil
}

// CarriesPeer says that a connection carries messages of peers.
func CarriesPeer(raw net.Conn) {
	if p := ThrottleOf(raw); p != nil {
		p.peer.Store(true)
	}
}

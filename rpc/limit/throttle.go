package limit

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A client is charged for its requests by their estimated processor time, not by measured time,
// which grows when processors are short and would so slow down all clients. The requests of a
// client that must wait are read later, so that the kernel makes the client wait.
//
// Nor does a connection's reader run for long, while there is something to read, before other
// runnable goroutines: by itself Go lets a goroutine run for 10 ms, and requests of other
// connections would wait for each of these turns.
//
// The costs are processor time on a machine of 2026, measured once and rounded. They need not be
// exact, because all clients are charged by the same costs.
const (
	// costOfConnection is the cost of a new connection, with TLS.
	costOfConnection = 300 * time.Microsecond
	// costOfByte is the cost of receiving and decoding a byte, and costOfCallByte that of a byte on
	// a connection of gRPC, where a call of a hundred bytes takes 5 us.
	costOfByte     = 5 * time.Nanosecond
	costOfCallByte = 50 * time.Nanosecond
	// costOfMessage is the cost of receiving a message of requests and sending its answer,
	// costOfRequest of decoding and evaluating one request, costOfPart of one part of a request.
	costOfMessage = 10 * time.Microsecond
	costOfRequest = 5 * time.Microsecond
	costOfPart    = 150 * time.Nanosecond

	// penaltyOfConnection is for a connection that ends without having had an answer, penaltyOfCall
	// for a gRPC call that ends before its message has come, or whose user lacks the permission: 30
	// and 40 times their cost, so that no client makes many of them.
	penaltyOfConnection = 10 * time.Millisecond
	penaltyOfCall       = 2 * time.Millisecond
	// penaltyOfByte is for each byte of incomplete gRPC messages on a connection that has more than
	// largeIncomplete bytes of them. It stands for assembling the message, which cannot be
	// interrupted.
	penaltyOfByte   = 20 * time.Nanosecond
	largeIncomplete = 256 << 10
	// penaltyOfLarge is the penalty for a message of many parts, as a multiple of its cost. For
	// clients that write much, decoding is at most a hundredth of the work.
	penaltyOfLarge = 16

	// turn is how long a reader runs before it yields to others: some 20 messages.
	turn = 250 * time.Microsecond
	// othersWait is how long a yield must take for a reader of something large to rest. It is
	// longer than a yield without waiting goroutines takes.
	othersWait = 50 * time.Microsecond
	// largeRest is that rest, the shortest for which a timer is reliable.
	largeRest = time.Millisecond
)

// processorWait is how long a goroutine that can run may wait: some times as long as a request
// takes.
const processorWait = 4 * time.Millisecond

// NewCPULimiter returns the limiter that all ports of a process share.
func NewCPULimiter() *quota.CPULimiter {
	processors := &admission.Processors{Wait: processorWait}
	return quota.NewCPULimiter(runtime.GOMAXPROCS(0), processors.Short)
}

// ConnThrottle charges a client for the traffic on one of its connections, and delays the
// connection.
type ConnThrottle struct {
	cpu *quota.CPULimiter
	// of is the client.
	of     string
	paused func(time.Duration)
	// exempt is set for a server's connection, calls for one of gRPC, useful when an answer was
	// sent on it. unverified is set if the client was unverified when it was last charged.
	exempt, calls, useful, unverified atomic.Bool
	// peer is set if it carries messages of peers, which never yield.
	peer atomic.Bool
	// since is when the reading goroutine began its turn, relative to turnsFrom.
	since atomic.Int64
	// delay is how long the next read waits, for costs charged since the last one.
	delay  atomic.Int64
	closed chan struct{}
	once   sync.Once
}

// turnsFrom is the origin of times of turns.
var turnsFrom = time.Now()

// open charges for the connection. It is called once, before the connection is used. An unused
// connection costs as much: accepting it, its goroutine and buffers, and closing it take processor
// time.
func (c *ConnThrottle) open() { c.charge(costOfConnection) }

// read is called by the reading goroutine with the number of bytes read, and whether it had to wait
// for them.
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

// charge adds costs of what was read. The next between, or read, waits for them.
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

// between is called by the reading goroutine between two units of work: it waits if the client must
// wait, and otherwise yields if its turn is over.
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

// Rest is called by the reading goroutine between two parts of something large: it yields if its
// turn is over, and rests if other goroutines ran meanwhile.
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
	// If a turn took very long, other processes or the garbage collector interrupted it.
	if rests && (time.Since(now) > othersWait || took > 4*turn) {
		c.wait(largeRest)
	}
	c.begin(time.Now())
}

// begin begins the turn of the reading goroutine.
func (c *ConnThrottle) begin(now time.Time) { c.since.Store(int64(now.Sub(turnsFrom))) }

// wait waits for d, at most until the connection is closed.
func (c *ConnThrottle) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// penalize adds a penalty for useless or harmful work.
func (c *ConnThrottle) penalize(d time.Duration) {
	if c != nil && !c.exempt.Load() {
		c.cpu.Penalize(c.of, d, time.Now())
	}
}

// PenalizeUseless adds the penalty for a connection that ends without use.
func (c *ConnThrottle) PenalizeUseless() { c.penalize(penaltyOfConnection) }

// ChargeMessage charges for a message of requests with a decoded size, and yields. many: most of
// these bytes belong to its parts.
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

// Use notes an answer on the connection: the connection is useful, and its client verified.
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

// most limits the bytes of one read of a connection. While processors are short, gRPC's reader,
// which does not call between, gets no more at a time than it can decode in a turn.
func (c *ConnThrottle) most(n int) int {
	if c.calls.Load() && c.cpu.Short() && !c.exempt.Load() {
		return min(n, int(turn/costOfCallByte))
	}
	return n
}

// Over reports that the connection is closed, so that data read before is worthless.
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

// close ends all waits.
func (c *ConnThrottle) close() {
	c.once.Do(func() {
		close(c.closed)
		if !c.useful.Load() {
			c.PenalizeUseless()
		}
	})
}

// ThrottleOf returns the throttle of a connection; nil if it has none.
func ThrottleOf(raw net.Conn) *ConnThrottle {
	if c, ok := raw.(*placedTCP); ok {
		return c.throttle
	}
	return nil
}

// CarriesPeer notes that a connection carries messages of peers.
func CarriesPeer(raw net.Conn) {
	if p := ThrottleOf(raw); p != nil {
		p.peer.Store(true)
	}
}

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

// Hosts pay for what they have a server do by about how much processor time it takes: not by what
// was measured, which is longer when processors are short, and so would slow down all hosts. A host
// that has to pause gets later what was read, and the kernel makes it wait in its turn.
//
// Nor does a connection have its reader go on for long, then, while there is something to read,
// before others that can run: Go by itself takes 10 ms for a turn, and requests of other
// connections would wait so long for each of those.
const (
	// costOfConnection is what it takes to begin one, with TLS; costOfByte to receive and decode one,
	// costOfCallByte one of a connection of gRPC, where a call may have a hundred; costOfMessage to
	// take a message of requests and answer it, costOfRequest and costOfPart to decode and evaluate a
	// request and each of its parts.
	costOfConnection = 300 * time.Microsecond
	costOfByte       = 5 * time.Nanosecond
	costOfCallByte   = 50 * time.Nanosecond
	costOfMessage    = 10 * time.Microsecond
	costOfRequest    = 5 * time.Microsecond
	costOfPart       = 150 * time.Nanosecond
	// turn is for how long the reader of a connection goes on before others go first, while processors
	// are short, and longTurn otherwise.
	turn     = 100 * time.Microsecond
	longTurn = time.Millisecond
	// largeTurn is for how long something large is gone on with, and largeRest for how long it rests
	// then if others have waited for longer than othersWait.
	largeTurn  = 250 * time.Microsecond
	largeRest  = time.Millisecond
	othersWait = 50 * time.Microsecond
	// penaltyOfOpening is what a host owes for each connection, penaltyOfConnection for one that ends
	// without having been of use, and penaltyOfCall for a call of gRPC that ends before its message
	// has come: more than these take, so that a host cannot make many of them. penaltyOfLarge is how
	// many times its cost a host owes for a message of many parts: of what a host that writes much
	// makes a server do, decoding is no more than a hundredth.
	penaltyOfOpening    = 500 * time.Microsecond
	penaltyOfConnection = 10 * time.Millisecond
	penaltyOfCall       = 2 * time.Millisecond
	penaltyOfLarge      = 16
	// penaltyOfByte is for bytes of calls of gRPC that are incomplete, from largeIncomplete on.
	penaltyOfByte   = 20 * time.Nanosecond
	largeIncomplete = 256 << 10
)

// NewCPULimiter makes the Pace that all doors of a process share.
func NewCPULimiter() *quota.Pace {
	return quota.NewPace(runtime.GOMAXPROCS(0),
		newScheduling().strain)
}

// ConnThrottle paces one connection.
type ConnThrottle struct {
	pace   *quota.Pace
	of     string
	paused func(time.Duration)
	// exempt: it is a server's. calls: it is one of gRPC. useful: it was not for nothing. stranger:
	// the host was a stranger when it was charged last.
	exempt, calls, useful, stranger atomic.Bool
	// peer: it carries messages of peers, which wait for no turn.
	peer atomic.Bool
	// since is when the goroutine that reads began its turn, after turnsFrom.
	since atomic.Int64
	// penalty is for how long the host has to pause, for what was charged since the last read.
	penalty atomic.Int64
	closed  chan struct{}
	once    sync.Once
}

// turnsFrom is when times of turns begin.
var turnsFrom = time.Now()

// open is called once, before the connection is used. One on which nothing comes costs as much:
// what takes processor time is to accept it, to give it a goroutine and buffers, and to close it.
func (c *ConnThrottle) open() {
	c.penalize(penaltyOfOpening)
	c.charge(costOfConnection)
}

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
	wait, stranger := c.pace.Charge(c.of, costs, now)
	c.penalty.Store(int64(wait))
	if stranger != c.stranger.Load() {
		c.stranger.Store(stranger)
	}
}

// between is called by the goroutine that reads, between two things that it does for the
// connection: it waits if the host has to pause, and lets others go first whose turn it is.
func (c *ConnThrottle) between() {
	if c == nil || c.exempt.Load() {
		return
	}
	if owed := c.penalty.Swap(0); owed > 0 {
		c.pause(time.Duration(owed))
		return
	}
	c.yield()
}

// yield lets others go first whose turn it is.
func (c *ConnThrottle) yield() {
	if c == nil || c.exempt.Load() || c.peer.Load() {
		return
	}
	long := longTurn
	if c.pace.Short() {
		long = turn
	}
	if now := time.Now(); now.Sub(turnsFrom)-time.Duration(c.since.Load()) > long {
		runtime.Gosched()
		c.begin(time.Now())
	}
}

// Rest is yield between two parts of something large: if others wait meanwhile, it is gone on with
// only after a rest.
func (c *ConnThrottle) Rest() {
	if c == nil || c.exempt.Load() || c.peer.Load() {
		return
	}
	now := time.Now()
	took := now.Sub(turnsFrom) - time.Duration(c.since.Load())
	if took <= largeTurn {
		return
	}
	runtime.Gosched()
	// A turn that took long was interrupted by other processes, or by the collector of garbage.
	if others := time.Since(now); others > othersWait || took > longTurn {
		c.wait(largeRest)
	}
	c.begin(time.Now())
}

// begin begins the turn of the goroutine that reads.
func (c *ConnThrottle) begin(now time.Time) { c.since.Store(int64(now.Sub(turnsFrom))) }

// pause waits.
func (c *ConnThrottle) pause(wait time.Duration) {
	if wait <= 0 {
		return
	}
	c.paused(wait)
	c.wait(wait)
	c.begin(time.Now())
}

// wait waits, at most until the connection is closed.
func (c *ConnThrottle) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// penalize has the host pay for what is large, or of no use.
func (c *ConnThrottle) penalize(debt time.Duration) {
	if c != nil && !c.exempt.Load() {
		c.pace.Owe(c.of, debt, time.Now())
	}
}

// PenalizeUseless has the host pay for a connection on which nothing of use came.
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

// Use says that the connection is of use. It is called for each answer.
func (c *ConnThrottle) Use() {
	if c == nil {
		return
	}
	if !c.useful.Load() {
		c.useful.Store(true)
	}
	if c.stranger.Load() && c.stranger.CompareAndSwap(true, false) {
		c.pace.Useful(c.of, time.Now())
	}
}

// most is how many bytes one read of a connection gives at most. While processors are short, a
// reader that does not come between what it has read has no more of it at a time than for a turn.
func (c *ConnThrottle) most(n int) int {
	if c.calls.Load() && c.pace.Short() && !c.exempt.Load() {
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
		return c.pace
	}
	return nil
}

// CarriesPeer says that a connection carries messages of peers.
func CarriesPeer(raw net.Conn) {
	if p := ThrottleOf(raw); p != nil {
		p.peer.Store(true)
	}
}

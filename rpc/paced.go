package rpc

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// Hosts pay for what they have a server do by about how much processor time it takes: not by what
// was measured, which is longer when processors are short, and so would slow down all hosts. A host
// that has to pause gets later what was read, and the kernel makes it wait in its turn.
const (
	// costOfConnection is what it takes to begin one, with TLS; costOfByte to receive and decode one,
	// costOfCallByte one of a connection of gRPC, where a call may have a hundred; costOfRequest
	// and costOfPart to decode and evaluate a request and each of its parts.
	costOfConnection = 300 * time.Microsecond
	costOfByte       = 5 * time.Nanosecond
	costOfCallByte   = 50 * time.Nanosecond
	costOfRequest    = 5 * time.Microsecond
	costOfPart       = 150 * time.Nanosecond
)

// NewPace makes the Pace that all doors of a process share.
func NewPace() *quota.Pace { return quota.NewPace(newScheduling().short) }

// connPace paces one connection.
type connPace struct {
	pace   *quota.Pace
	of     string
	paused func(time.Duration)
	// exempt: it is a server's. calls: it is one of gRPC. begun: something was read.
	exempt, calls, begun atomic.Bool
	closed               chan struct{}
	once                 sync.Once
}

// read is called with how many bytes were read, by the goroutine that reads.
func (c *connPace) read(n int) {
	if c.exempt.Load() {
		return
	}
	costs := costOfByte
	if c.calls.Load() {
		costs = costOfCallByte
	}
	costs *= time.Duration(n)
	if c.begun.CompareAndSwap(false, true) {
		costs += costOfConnection
	}
	wait := c.pace.Charge(c.of, costs, time.Now())
	if wait <= 0 {
		return
	}
	c.paused(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

// charge adds costs of what was read: the next read waits for them.
func (c *connPace) charge(costs time.Duration) {
	if !c.exempt.Load() {
		c.pace.Charge(c.of, costs, time.Now())
	}
}

// close ends waiting.
func (c *connPace) close() { c.once.Do(func() { close(c.closed) }) }

// paceOf is how a connection is paced; nil: it is not.
func paceOf(raw net.Conn) *connPace {
	if c, ok := raw.(*placedTCP); ok {
		return c.pace
	}
	return nil
}

// chargeRequests charges the host of a connection for requests that it has sent.
func chargeRequests(raw net.Conn, requests, parts int) {
	if p := paceOf(raw); p != nil {
		p.charge(time.Duration(requests)*costOfRequest + time.Duration(parts)*costOfPart)
	}
}

package clocks

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Future reads: requests that name a timestamp from the future.
//
// A request names timestamps: the session's, the one that it reads at, those of a transaction. The
// node that serves it advances its clock to those. That must not carry clocks, and the timestamps
// of later writes, further ahead than the limits of uncertain reads and the first timestamps of new
// leaders allow for (see package hlc). A caller may name any timestamp. Even a timestamp that a new
// leader has given may be more than hlc.Clock.MaxAhead ahead of this node's physical clock, if that
// is behind the leader's. So such a request is put aside until the clock has come near enough.
//
// Writes are not put aside: an attempt that waited here could run after its retry was answered that
// nothing was done, and undo later writes of others (see range/replica/concurrency/attempts.go).
// They are refused, did not run, and clients send them again.
//
// Among clocks that agree nothing ever waits: no timestamp is more than MaxAhead ahead of the clock
// that gave it.

// mostFutureReads bounds the requests that wait; more are refused.
const mostFutureReads = 4096

// Server answers the requests that no longer wait.
type Server interface {
	// Resume continues a request.
	Resume(config.Pending)
	// Refuse answers a request that does not run.
	Refuse(q *kvpb.Request, e *kvpb.Error, reply func(*kvpb.Response))
}

// FutureReads are the requests that wait for the physical clock.
type FutureReads struct {
	node   *hosted.Node
	server Server
	after  func(time.Duration, func()) timer.Timer
	count  prometheus.Counter
	mu     struct {
		sync.Mutex
		closed  bool
		waiting map[*futureRead]struct{}
	}
	// running counts the requests whose wait is over, and which are being passed on.
	running sync.WaitGroup
}

type futureRead struct {
	request config.Pending
	at      hlc.Timestamp
	timer   timer.Timer
}

// NewFutureReads makes FutureReads. after calls a function after a time.
func NewFutureReads(n *hosted.Node, s Server,
	after func(time.Duration, func()) timer.Timer) *FutureReads {
	return &FutureReads{node: n, server: s, after: after, count: n.Metrics.Counter(
		"future_timestamp_requests_total", "Requests that waited, or were refused, because they named "+
			"timestamps too far ahead of this server's clock.")}
}

// PutAside takes the requests out of a batch that have to wait, and returns the others. The batch
// is not changed.
func (a *FutureReads) PutAside(client uint64, batch []*kvpb.Request,
	reply func(*kvpb.Response), arrived time.Time) []*kvpb.Request {
	clock := a.node.Clock
	horizon := clock.Physical() + int64(clock.MaxAhead())
	for i, q := range batch {
		if command.Of(q).LatestNamed(q) <= horizon {
			continue
		}
		rest := append(make([]*kvpb.Request, 0, len(batch)), batch[:i]...)
		for _, q := range batch[i:] {
			at := hlc.Timestamp{Wall: command.Of(q).LatestNamed(q)}
			switch wait := clock.Delay(at); {
			case wait > 0 && !command.Of(q).ReadOnly():
				a.count.Inc()
				a.tooEarly(q, fmt.Sprintf("node %s: a write names a timestamp that is ahead of "+
					"this node's clock by more than clocks may differ; "+
					"it can run in %s", a.node.ID, wait.Round(time.Millisecond)), reply)
				continue
			case wait > 0:
				a.hold(&futureRead{request: config.Pending{Client: client, Request: q,
					Reply: reply, Arrived: arrived}, at: at}, wait)
				continue
			}
			rest = append(rest, q)
		}
		return rest
	}
	return batch
}

// hold puts a request aside.
func (a *FutureReads) hold(h *futureRead, wait time.Duration) {
	a.mu.Lock()
	if a.mu.closed || len(a.mu.waiting) >= mostFutureReads {
		closed := a.mu.closed
		a.mu.Unlock()
		if closed {
			a.refuseClosing(h)
			return
		}
		a.tooEarly(h.request.Request, fmt.Sprintf("node %s: too many requests name timestamps "+
			"that are ahead of its clock; "+
			"check the time synchronisation of the servers", a.node.ID), h.request.Reply)
		return
	}
	if a.mu.waiting == nil {
		a.mu.waiting = make(map[*futureRead]struct{})
	}
	a.mu.waiting[h] = struct{}{}
	h.request.Request = wire.CloneRequest(h.request.Request)
	a.count.Inc()
	h.timer = a.after(wait, func() { a.resume(h) })
	a.mu.Unlock()
}

// resume passes a request on, if its time has come.
func (a *FutureReads) resume(h *futureRead) {
	a.mu.Lock()
	if _, still := a.mu.waiting[h]; !still {
		a.mu.Unlock()
		return
	}
	if wait := a.node.Clock.Delay(h.at); wait > 0 {
		h.timer.Reset(max(wait, minFutureWait)) // timers run by another clock
		a.mu.Unlock()
		return
	}
	delete(a.mu.waiting, h)
	a.running.Add(1)
	a.mu.Unlock()
	defer a.running.Done()
	a.server.Resume(h.request)
}

// minFutureWait is the least time before another look at the clock.
const minFutureWait = 100 * time.Microsecond

// Close refuses waiting requests, and from now on all that would wait. It returns when the requests
// that were being passed on have been.
func (a *FutureReads) Close() {
	a.mu.Lock()
	a.mu.closed = true
	held := a.mu.waiting
	a.mu.waiting = nil
	for h := range held {
		h.timer.Stop()
	}
	a.mu.Unlock()
	for h := range held {
		a.refuseClosing(h)
	}
	a.running.Wait()
}

// tooEarly refuses a request because of a clock. For the sender it is as if the node were
// overloaded: it waits, and sends the request here again.
func (a *FutureReads) tooEarly(q *kvpb.Request, message string, reply func(*kvpb.Response)) {
	a.server.Refuse(q, &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED, Message: message,
		Cause: kvpb.ErrorCause_CAUSE_CLOCKS}, reply)
}

// refuseClosing answers a request that does not run because the node is closing.
func (a *FutureReads) refuseClosing(h *futureRead) {
	a.server.Refuse(h.request.Request, &kvpb.Error{Code: kvpb.ErrorCode_NODE_UNHEALTHY,
		Message: fmt.Sprintf("node %s is closing", a.node.ID)}, h.request.Reply)
}

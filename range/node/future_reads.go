package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/alarm"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Future reads: requests that name a timestamp from the future.
//
// A request names timestamps: the session's, the one that it reads at, those of a transaction. The
// node that serves it brings its clock up to those. That must not carry clocks, and with them what
// is written next, further ahead than the limits of uncertain reads and the first timestamps of new
// leaders allow for (see package hlc). A caller is free to name any, and even one that a new leader
// has given may be more than hlc.Clock.MaxAhead ahead of this node's physical clock, if that is
// behind the leader's. So such a request is put aside until it is not.
//
// Writes are not: an attempt that waited here could run after its retry was answered that nothing
// was done, and undo what others have written since (see range/replica/concurrency/attempts.go).
// They are refused, did not run, and clients send them again.
//
// Among clocks that show the same nothing ever waits: no timestamp is more than MaxAhead ahead of
// the clock that gave it.

// mostFutureReads is how many requests wait at most; more are refused.
const mostFutureReads = 4096

// futureReads are the requests that wait for the physical clock.
type futureReads struct {
	mu struct {
		sync.Mutex
		closed  bool
		waiting map[*futureRead]struct{}
	}
	// running are those whose wait is over, and which are being handed on.
	running sync.WaitGroup
}

type futureRead struct {
	request config.Pending
	at      hlc.Timestamp
	timer   alarm.Timer
}

// putAside takes the requests out of a batch that have to wait, and returns the others. The batch
// is not changed.
func (n *Node) putAside(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response),
	arrived time.Time) []*kvpb.Request {
	clock := n.config.Clock
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
				n.metrics.ahead.Inc()
				n.tooEarly(q, fmt.Sprintf("node %s: a write names a timestamp that is ahead of "+
					"this node's clock by more than clocks may differ; "+
					"it can run in %s", n.config.ID, wait.Round(time.Millisecond)), reply)
				continue
			case wait > 0:
				n.futureReads.hold(n, &futureRead{request: config.Pending{Client: client, Request: q,
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
func (a *futureReads) hold(n *Node, h *futureRead, wait time.Duration) {
	a.mu.Lock()
	if a.mu.closed || len(a.mu.waiting) >= mostFutureReads {
		closed := a.mu.closed
		a.mu.Unlock()
		if closed {
			n.refuseFutureRead(h)
			return
		}
		n.tooEarly(h.request.Request, fmt.Sprintf("node %s: too many requests name timestamps "+
			"that are ahead of its clock; "+
			"check the time synchronisation of the servers", n.config.ID), h.request.Reply)
		return
	}
	if a.mu.waiting == nil {
		a.mu.waiting = make(map[*futureRead]struct{})
	}
	a.mu.waiting[h] = struct{}{}
	h.request.Request = wire.CloneRequest(h.request.Request)
	n.metrics.ahead.Inc()
	h.timer = n.config.AfterFunc(wait, func() { a.resume(n, h) })
	a.mu.Unlock()
}

// resume hands a request on, if its time has come.
func (a *futureReads) resume(n *Node, h *futureRead) {
	a.mu.Lock()
	if _, still := a.mu.waiting[h]; !still {
		a.mu.Unlock()
		return
	}
	if wait := n.config.Clock.Delay(h.at); wait > 0 {
		h.timer.Reset(max(wait, minFutureWait)) // timers run by another clock
		a.mu.Unlock()
		return
	}
	delete(a.mu.waiting, h)
	a.running.Add(1)
	a.mu.Unlock()
	defer a.running.Done()
	n.resume(h.request)
}

// minFutureWait comes before another look at the clock.
const minFutureWait = 100 * time.Microsecond

// close refuses what waits, and from now on all that would. It returns when what was being handed
// on has been.
func (a *futureReads) close(n *Node) {
	a.mu.Lock()
	a.mu.closed = true
	held := a.mu.waiting
	a.mu.waiting = nil
	for h := range held {
		h.timer.Stop()
	}
	a.mu.Unlock()
	for h := range held {
		n.refuseFutureRead(h)
	}
	a.running.Wait()
}

// tooEarly refuses a request because of a clock. For the sender it is as if the node had no room:
// it waits, and sends it here again.
func (n *Node) tooEarly(q *kvpb.Request, message string, reply func(*kvpb.Response)) {
	n.refuseFor(q, &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED, Message: message,
		Cause: kvpb.ErrorCause_CAUSE_CLOCKS}, reply)
}

// refuseFutureRead answers a request that does not run because the node is closing.
func (n *Node) refuseFutureRead(h *futureRead) {
	n.refuse(h.request.Request, kvpb.ErrorCode_NODE_UNHEALTHY,
		fmt.Sprintf("node %s is closing", n.config.ID), h.request.Reply)
}

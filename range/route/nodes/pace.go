package nodes

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A node that is asked for more than it can do refuses requests, and says after which time a caller
// should try again. Each refused request is tried again after that time. New requests are held back
// as well, so that the node need not refuse them first: while the node takes less than half of what
// it is sent, a part of the requests waits before it is sent, the larger the less the node takes
// (adaptive throttling: Beyer and others, "Site Reliability Engineering", chapter 21, 2016; here
// requests wait in place of being refused). Requests of high priority are not held back.

const (
	// paceFactor is how many times as many requests are sent as the node takes.
	paceFactor = 2
	// paceHalf is the time in which what was counted counts half.
	paceHalf = 5 * time.Second
	// leastSent is the count below which nothing is left of it.
	leastSent = 0.5
	// mostRetryAfter bounds what a node may ask for.
	mostRetryAfter = 5 * time.Second
)

// pace counts what a node takes. The zero value is ready, and costs a look at an atomic until the
// node refuses a request.
type pace struct {
	active atomic.Bool
	mu     struct {
		sync.Mutex
		// sent and taken are the requests that were sent, and those that were not refused.
		sent, taken float64
		counted     time.Time
		retryAfter  time.Duration
	}
}

// delay is for how long a request waits before it is sent. random is uniform in [0, 1).
func (p *pace) delay(now time.Time, random float64) time.Duration {
	if !p.active.Load() {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decayLocked(now)
	if !p.active.Load() {
		return 0
	}
	sent := p.mu.sent + 1 // with this request
	chance := (sent - paceFactor*p.mu.taken) / (sent + 1)
	if random >= chance {
		return 0
	}
	// The same number says how long: it is uniform in [0, chance).
	return time.Duration(float64(p.mu.retryAfter) * (0.5 + random/chance))
}

// sending counts a request that is about to be sent. counted is for answered.
func (p *pace) sending(now time.Time) (counted bool) {
	if !p.active.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decayLocked(now)
	if counted = p.active.Load(); counted {
		p.mu.sent++
	}
	return counted
}

// answered takes in the answer to a request. counted says that the request was counted when it was
// sent: the answers to other requests say nothing about the part that the node takes.
func (p *pace) answered(response *kvpb.Response, counted bool) {
	// A quota of one keyspace says nothing about the node, and must not hold back requests to others.
	refused := response.GetError().GetCode() == kvpb.ErrorCode_OVERLOADED &&
		response.Error.RetryAfterMicros > 0 &&
		response.Error.Cause != kvpb.ErrorCause_CAUSE_QUOTA
	if !refused && (!counted || !p.active.Load()) {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decayLocked(now)
	if refused {
		if !p.active.Swap(true) {
			p.mu.sent++ // it was not counted when it was sent
		}
		p.mu.retryAfter = RetryAfter(response.Error)
		return
	}
	if p.active.Load() {
		p.mu.taken++
	}
}

// decayLocked has earlier counts count less, and stops counting when nearly nothing is left.
func (p *pace) decayLocked(now time.Time) {
	if since := now.Sub(p.mu.counted); since > 0 {
		part := math.Exp2(-float64(since) / float64(paceHalf))
		p.mu.sent, p.mu.taken, p.mu.counted = p.mu.sent*part, p.mu.taken*part, now
	}
	if p.mu.sent < leastSent {
		p.mu.sent, p.mu.taken = 0, 0
		p.active.Store(false)
	}
}

// RetryAfter is how long the node that has refused a request asks to wait; 0: it does not say.
func RetryAfter(e *kvpb.Error) time.Duration {
	micros := min(e.GetRetryAfterMicros(), uint64(mostRetryAfter.Microseconds()))
	return time.Duration(micros) * time.Microsecond
}

type priorityKey struct{}

// WithPriority returns a context whose requests have a priority.
func WithPriority(ctx context.Context, p kvpb.Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// priorityOf is the priority of requests in a context.
func priorityOf(ctx context.Context) kvpb.Priority {
	p, _ := ctx.Value(priorityKey{}).(kvpb.Priority)
	return p
}

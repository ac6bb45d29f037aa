package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/calltrace"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Lane is one stream to a node. Lane i of every node goes by the same client id and has its own
// connections; a request stays in its lane for all attempts.
type Lane struct {
	Node *Node
	// Index is the lane's number at the node.
	Index int
	conn  atomic.Pointer[client.BatchConn]

	// For the watchdog: requests without an answer, by the tick in which they were sent; and
	// answers so far.
	waiting  [tickRing]atomic.Int32
	answered atomic.Uint64
	// Only the watchdog's.
	seen   uint64
	silent int
}

// Stream returns the lane's BatchConn, which it makes if there is none.
func (l *Lane) Stream() (*client.BatchConn, error) {
	if c := l.conn.Load(); c != nil {
		return c, nil
	}
	n := l.Node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := l.conn.Load(); c != nil {
		return c, nil
	}
	if n.of.config.Life.Ended() {
		return nil, lifetime.ErrClosed
	}
	if n.mu.address == "" {
		return nil, errNoAddress
	}
	shared := n.of.lanes[l.Index]
	config := client.BatchConfig{
		Dialer:  shared.dialer,
		Address: n.mu.address,
		Client:  shared.client,
		Stream:  func() uint64 { return shared.streams.Add(1) },
		Cluster: n.of.config.Owner.Cluster(),
		Server:  n.of.config.Server,
	}
	if n.of.config.Identity.Named() {
		config.Token = n.of.config.Identity.ForStream
	}
	c := client.NewBatchConn(config)
	l.conn.Store(c)
	return c, nil
}

// Do sends one request on the lane and waits for its answer.
func (l *Lane) Do(ctx context.Context, r *kvpb.Request) (*kvpb.Response, error) {
	c, err := l.Stream()
	if err != nil {
		return nil, &client.ErrStreamBroken{Cause: err}
	}
	if err := l.hold(ctx, r); err != nil {
		return nil, err
	}
	waiting := l.Await(ctx, r)
	response, err := c.Do(ctx, r)
	return l.Received(waiting, response, err)
}

// ErrHeld means that a request was held back until its context ended, because the node refuses
// requests. It comes with client.ErrNotSent.
var ErrHeld = errors.New("the node refuses requests, and the request was held back")

// hold waits before a request is sent to a node that refuses requests. Its error is that of a
// request that was not sent.
func (l *Lane) hold(ctx context.Context, r *kvpb.Request) error {
	n := l.Node
	if !n.pace.active.Load() || priorityOf(ctx) == kvpb.Priority_PRIORITY_HIGH || !waitsToBegin(r) {
		return nil
	}
	d := n.pace.delay(time.Now(), n.of.random())
	if d <= 0 {
		return nil
	}
	n.of.config.Held.Add(d.Seconds())
	began := time.Now()
	if err := n.of.config.Life.Pause(ctx, d); err != nil {
		return fmt.Errorf("%w: %w: %w", client.ErrNotSent, ErrHeld, err)
	}
	// INVARIANT: the node gives up a request before its caller does.
	if left := r.TimeoutMicros; left > 0 {
		r.TimeoutMicros = left - min(uint64(time.Since(began).Microseconds()), left-1)
	}
	return nil
}

// waitsToBegin says that a request is of a kind that waits in the queue of a node, and may be
// refused there. Others are never held back: requests that end transactions, for which others wait,
// the pings by which the watchdog sees whether a node is alive, and writes of term 0, which look for
// a leader and are refused at once.
func waitsToBegin(r *kvpb.Request) bool {
	switch r.Command.(type) {
	case *kvpb.Request_Get, *kvpb.Request_BatchGet, *kvpb.Request_MultiGet, *kvpb.Request_Scan,
		*kvpb.Request_MergeScan, *kvpb.Request_Count:
		return true
	case *kvpb.Request_Put, *kvpb.Request_Delete, *kvpb.Request_CompareAndSwap,
		*kvpb.Request_Increment, *kvpb.Request_WriteBatch, *kvpb.Request_DeleteRange,
		*kvpb.Request_Load, *kvpb.Request_Prepare:
		return r.Term != 0
	}
	return false
}

// Awaited is a request that waits for its answer.
type Awaited struct {
	tick *atomic.Int32
	// from is when it is sent, if it samples the time.
	from    time.Time
	sampled bool
	// paced: the request counts for the pace of its node.
	paced bool
	span  calltrace.Span
}

// Abandon notes that the request was not sent, or that its answer counts no more.
func (w Awaited) Abandon() {
	w.tick.Add(-1)
	w.span.Answered(nil, errAbandoned)
}

var errAbandoned = errors.New("it was not sent, or its answer counts no more")

// Await notes that a request is about to be sent, and has the request carry the priority and the
// span in ctx.
func (l *Lane) Await(ctx context.Context, r *kvpb.Request) Awaited {
	w := Awaited{tick: &l.waiting[l.Node.of.ticks.Load()%tickRing]}
	w.from, w.sampled = l.Node.of.config.Clock.SampleDue(l.Node.of.ticks.Load())
	w.tick.Add(1)
	r.Priority = priorityOf(ctx)
	if n := l.Node; n.pace.active.Load() && r.Priority != kvpb.Priority_PRIORITY_HIGH &&
		waitsToBegin(r) {
		w.paced = n.pace.sending(time.Now())
	}
	w.span = l.Node.of.config.Tracer.Request(ctx, r, uint64(l.Node.ID))
	return w
}

// Received takes in the answer to a request, or that there is none.
func (l *Lane) Received(w Awaited, response *kvpb.Response, err error) (*kvpb.Response, error) {
	w.tick.Add(-1)
	w.span.Answered(response, err)
	if errors.Is(err, client.ErrClosed) {
		// It was given up between stream and Do.
		return nil, &client.ErrStreamBroken{Cause: err}
	}
	if err == nil {
		s := l.Node.of
		l.answered.Add(1)
		l.Node.pace.answered(response, w.paced)
		s.config.Clock.Hear(response.Now)
		if w.sampled && !response.ClockUntrusted {
			s.config.Clock.Sample(wire.FromTimestamp(response.Now), w.from, time.Now())
		}
	}
	return response, err
}

// Now asks the node for its clock, and makes sure that it is the node it should be.
func (l *Lane) Now(ctx context.Context) (*kvpb.Timestamp, error) {
	s := l.Node.of
	r := &kvpb.Request{
		Sequence: s.config.Owner.NextSequence(),
		Session:  s.config.Clock.SessionOfRequest(),
		Command:  &kvpb.Request_Now{Now: &kvpb.NowRequest{}},
	}
	response, err := l.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	if e := response.Error; e != nil {
		if e.Code == kvpb.ErrorCode_CLOCK_SKEW {
			return nil, fmt.Errorf("%w: %s", ErrNoTime, e.Message)
		}
		return nil, errors.New(e.Message)
	}
	result := response.GetNowResult()
	if result == nil || response.Now == nil {
		return nil, errors.New("the answer to Now carries no time")
	}
	if result.Node != uint64(l.Node.ID) {
		return nil, fmt.Errorf("%w: %s", errOtherNode, keys.NodeID(result.Node))
	}
	return response.Now, nil
}

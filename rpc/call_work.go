package rpc

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// maxCallTime is the longest timeout of a call that counts: a duration has no room for all.
const maxCallTime = 24 * time.Hour

// begin begins calls, without waiting for anything, and returns what is left to do for them; nil:
// nothing is. The calls hold the stream until they are answered.
func (s *CallServer) begin(ss *serverStream, requests []*kvpb.Request) Work {
	var quick *quickCalls
	now := time.Now()
	for _, r := range requests {
		c := s.newCall(ss, r, now)
		ss.calls.Add(1)
		if s.config.Quick(c.method.name) {
			if quick == nil {
				quick = &quickCalls{server: s, ctx: ss.callContext}
			}
			quick.calls = append(quick.calls, c)
			continue
		}
		select {
		case s.queue <- c:
		default:
			s.running.Go(func() { s.work(c) })
		}
	}
	if quick == nil {
		return nil
	}
	return quick
}

// newCall is the call of a request that was checked, and came now.
func (s *CallServer) newCall(ss *serverStream, r *kvpb.Request, now time.Time) *serverCall {
	c := &serverCall{server: s, stream: ss, id: r.Id, method: s.methods[r.Call.Method],
		message: r.Call.Message, requireLeader: r.Call.RequireLeader,
		// It aliases the message that brought it, and may be kept.
		token: strings.Clone(r.Call.Token)}
	if r.TimeoutMicros > 0 {
		c.deadline = now.Add(time.Duration(min(r.TimeoutMicros, uint64(maxCallTime.Microseconds()))) *
			time.Microsecond)
	}
	return c
}

// quickCalls are the quick calls of one message. They implement Work.
type quickCalls struct {
	server *CallServer
	ctx    context.Context
	calls  []*serverCall
	next   atomic.Int32
}

// Run implements Work.
func (q *quickCalls) Run() {
	ctx, end := q.server.config.Share(q.ctx)
	defer end()
	for {
		i := int(q.next.Add(1)) - 1
		if i >= len(q.calls) {
			return
		}
		q.calls[i].serve(ctx)
	}
}

// Done implements Work.
func (q *quickCalls) Done() {}

// bothWorks is the work of the commands and of the calls of one message.
type bothWorks [2]Work

// Run implements Work.
func (b bothWorks) Run() {
	for _, w := range b {
		w.Run()
	}
}

// Done implements Work.
func (b bothWorks) Done() {
	for _, w := range b {
		w.Done()
	}
}

// work serves a call, and others that come while few goroutines wait for one.
func (s *CallServer) work(c *serverCall) {
	for {
		c.serve(c.stream.callContext)
		c = nil
		if s.idle.Add(1) <= idleCallers {
			select {
			case c = <-s.queue:
			case <-s.stop:
			}
		}
		s.idle.Add(-1)
		if c == nil {
			return
		}
	}
}

package rpc

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// maxCallTime bounds the timeout of a call, because a larger one may overflow a duration.
const maxCallTime = 24 * time.Hour

// begin begins calls, without waiting for anything, and returns the rest of the work; nil if
// nothing is left. The stream stays open until the calls are answered.
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

// newCall makes the call of a checked request that arrived at now.
func (s *CallServer) newCall(ss *serverStream, r *kvpb.Request, now time.Time) *serverCall {
	c := &serverCall{server: s, stream: ss, id: r.Id, method: s.methods[r.Call.Method],
		message: r.Call.Message, requireLeader: r.Call.RequireLeader,
		// The token aliases the message that contained it, and the handler may keep it.
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

// bothWorks combines the work of the commands and of the calls of one message.
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

// work serves a call, and then further calls while few goroutines are idle.
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

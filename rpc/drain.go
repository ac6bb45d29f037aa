package rpc

import (
	"context"
	"sync"
	"time"
)

// drainPeriod is how often Drain checks for answers.
const drainPeriod = 2 * time.Millisecond

// openStreams are the streams that a BatchServer serves.
type openStreams struct {
	mu  sync.Mutex
	all map[*serverStream]struct{}
}

func (o *openStreams) add(ss *serverStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = make(map[*serverStream]struct{})
	}
	o.all[ss] = struct{}{}
}

func (o *openStreams) remove(ss *serverStream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, ss)
}

// Drain waits until all requests taken so far are answered and their answers are given to the
// connections, or until their streams or ctx have ended. It is for a server that is about to end.
// Requests that arrive meanwhile are served, but not waited for. Drain returns false if ctx has
// ended first.
func (s *BatchServer) Drain(ctx context.Context) bool {
	waiting := make(map[*serverStream][]uint64)
	s.open.mu.Lock()
	for ss := range s.open.all {
		waiting[ss] = ss.unanswered()
	}
	s.open.mu.Unlock()
	timer := time.NewTimer(drainPeriod)
	defer timer.Stop()
	for {
		for ss, ids := range waiting {
			if !ss.waitsFor(ids) {
				delete(waiting, ss)
			}
		}
		if len(waiting) == 0 {
			return true
		}
		timer.Reset(drainPeriod)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
}

// unanswered lists the requests that have no answer yet.
func (ss *serverStream) unanswered() []uint64 {
	ss.out.Lock()
	defer ss.out.Unlock()
	ids := make([]uint64, 0, len(ss.inFlight))
	for id := range ss.inFlight {
		ids = append(ids, id)
	}
	return ids
}

// waitsFor reports whether one of the requests has no answer yet, or answers wait to be sent.
func (ss *serverStream) waitsFor(ids []uint64) bool {
	ss.out.Lock()
	defer ss.out.Unlock()
	if ss.out.ClosedLocked() {
		return false
	}
	for _, id := range ids {
		if _, ok := ss.inFlight[id]; ok {
			return true
		}
	}
	return ss.out.PendingLocked() > 0 || ss.out.SendingLocked()
}

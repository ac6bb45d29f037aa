package rpc

import (
	"context"
	"sync"
	"time"
)

// drainPeriod is how often Drain looks.
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

// Drain waits until the requests that have been taken in at this moment are answered and the
// answers are on their way, or their streams or ctx have ended. It is for a server that is about to
// end: what comes meanwhile is served, and not waited for.
func (s *BatchServer) Drain(ctx context.Context) {
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
			return
		}
		timer.Reset(drainPeriod)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
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

// waitsFor says whether one of the requests has no answer yet, or answers wait to be sent.
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

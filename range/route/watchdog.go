package route

import (
	"context"
	"errors"
	"time"
)

const (
	// watchdogTick is how often the watchdog looks.
	watchdogTick = 200 * time.Millisecond
	// pingAfter ticks of silence a ping shows whether the node is alive and merely slow with what
	// it was asked.
	pingAfter = 2
	// silentAfter ticks of silence, ping included, the node is given up.
	silentAfter = 5
	// stuckAfter ticks a request is sent again, although its node answers others: it must have been
	// lost.
	stuckAfter = 100
	// patience is how long a request waits at its node, for a lock or in a queue, before the node
	// says so and it is sent again: not so long that it is taken for lost.
	patience = stuckAfter * watchdogTick / 2
	// tickRing is above stuckAfter, so that a slot of the ring is empty when its turn comes again.
	tickRing = 128
)

var errStuck = errors.New("a request was not answered")

// watchdog notices nodes from which nothing comes while requests wait for them: a stopped process
// keeps its connections, and nothing else would tell. It counts by ticks, so that a request costs a
// few atomic additions and no timer.
func (s *Sender) watchdog() {
	ticker := time.NewTicker(watchdogTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.life.Done():
			return
		}
		now := s.ticks.Add(1)
		if now%pingTicks == 0 {
			s.pingWanted(now)
		}
		for _, n := range *s.nodes.Load() {
			for _, l := range n.lanes {
				s.look(l, now)
			}
		}
	}
}

// look counts the ticks in a row in which a lane had requests waiting, and no answer.
func (s *Sender) look(l *lane, now uint32) {
	if l.waiting[(now-stuckAfter)%tickRing].Load() > 0 {
		s.giveUp(l.node, errStuck)
		return
	}
	answered := l.answered.Load()
	if answered != l.seen || l.node.suspected.Load() || !l.anyWaiting() {
		l.seen, l.silent = answered, 0
		return
	}
	l.silent++
	switch l.silent {
	case pingAfter:
		s.life.Go(func() {
			ctx, cancel := context.WithTimeout(s.life.Context(), pingTimeout)
			defer cancel()
			// Only that an answer comes counts, and lane.do counts it.
			_, _ = l.now(ctx)
		})
	case silentAfter:
		l.silent = 0
		s.giveUp(l.node, errSilent)
	}
}

// giveUp suspects a node and ends its streams, so that what waits on them goes elsewhere.
func (s *Sender) giveUp(n *node, reason error) {
	n.suspect(n.incarnation.Load(), reason)
	n.hangUp()
}

func (l *lane) anyWaiting() bool {
	for i := range l.waiting {
		if l.waiting[i].Load() > 0 {
			return true
		}
	}
	return false
}

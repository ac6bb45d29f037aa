package route

import (
	"context"
	"time"
)

const (
	// watchdogTick is how often the watchdog looks.
	watchdogTick = 200 * time.Millisecond
	// pingAfter ticks of silence a ping shows whether the node is alive and merely slow with what it was asked.
	pingAfter = 2
	// silentAfter ticks of silence, ping included, the node is given up.
	silentAfter = 5
)

// watch notices nodes from which nothing comes while requests wait for them: a stopped process keeps its connections, and
// nobody else would tell. It counts answers per tick, so that a request costs two atomic additions and no timer.
func (s *Sender) watchdog() {
	ticker := time.NewTicker(watchdogTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.done:
			return
		}
		for _, n := range *s.nodes.Load() {
			for _, l := range n.lanes {
				s.look(l)
			}
		}
	}
}

// look counts the ticks in a row in which a lane had requests waiting, and no answer.
func (s *Sender) look(l *lane) {
	answered := l.answered.Load()
	if l.waiting.Load() == 0 || answered != l.seen || l.node.suspected.Load() {
		l.seen, l.silent = answered, 0
		return
	}
	l.silent++
	switch l.silent {
	case pingAfter:
		s.spawn(func() {
			ctx, cancel := context.WithTimeout(s.ctx, pingTimeout)
			defer cancel()
			// Only that an answer comes counts, and lane.do counts it.
			_, _ = l.now(ctx)
		})
	case silentAfter:
		l.silent = 0
		l.node.suspect(l.node.incarnation.Load(), errSilent)
		l.node.hangUp()
	}
}

package nodes

import (
	"context"
	"errors"
	"time"
)

const (
	// pingAfter ticks of silence a ping shows whether the node is alive and merely slow with what
	// it was asked.
	pingAfter = 2
	// silentAfter ticks of silence, ping included, the node is given up.
	silentAfter = 5
	// pingTicks lie between two pings of a node whose latency is wanted.
	pingTicks = 5
	// MaxPings is how many nodes are pinged at a time.
	MaxPings = 64
)

var errStuck = errors.New("a request was not answered")

// Watch starts the watchdog.
func (s *Nodes) Watch() { s.config.Life.Go(s.watch) }

// watch notices nodes from which nothing comes while requests wait for them: a stopped process
// keeps its connections, and nothing else would tell. It counts by ticks, so that a request costs a
// few atomic additions and no timer.
func (s *Nodes) watch() {
	ticker := time.NewTicker(watchdogTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.config.Life.Done():
			return
		}
		now := s.ticks.Add(1)
		if now%pingTicks == 0 {
			s.pingWanted(now)
		}
		for _, n := range *s.all.Load() {
			for _, l := range n.Lanes {
				s.look(l, now)
			}
		}
	}
}

// look counts the ticks in a row in which a lane had requests waiting, and no answer.
func (s *Nodes) look(l *Lane, now uint32) {
	if l.waiting[(now-stuckAfter)%tickRing].Load() > 0 {
		s.giveUp(l.Node, errStuck)
		return
	}
	answered := l.answered.Load()
	if answered != l.seen || l.Node.suspected.Load() || !l.anyWaiting() {
		l.seen, l.silent = answered, 0
		return
	}
	l.silent++
	switch l.silent {
	case pingAfter:
		s.config.Life.Go(func() {
			ctx, cancel := context.WithTimeout(s.config.Life.Context(), pingTimeout)
			defer cancel()
			// Only that an answer comes counts, and Lane.Do counts it.
			_, _ = l.Now(ctx)
		})
	case silentAfter:
		l.silent = 0
		s.giveUp(l.Node, errSilent)
	}
}

// giveUp suspects a node and ends its streams, so that what waits on them goes elsewhere.
func (s *Nodes) giveUp(n *Node, reason error) {
	n.Suspect(n.incarnation.Load(), reason)
	n.hangUp()
}

func (l *Lane) anyWaiting() bool {
	for i := range l.waiting {
		if l.waiting[i].Load() > 0 {
			return true
		}
	}
	return false
}

// pingWanted pings the nodes that reads have looked at since the last time.
func (s *Nodes) pingWanted(tick uint32) {
	pings := 0
	for _, n := range *s.all.Load() {
		at := n.wanted.Load()
		if at == 0 || tick+1-at > pingTicks || n.suspected.Load() || pings == MaxPings ||
			!n.pinging.CompareAndSwap(false, true) {
			continue
		}
		pings++
		if !s.config.Life.Go(func() {
			defer n.pinging.Store(false)
			_, _ = n.Measure(s.config.Life.Context()) // what does not answer is noticed by the watchdog
		}) {
			n.pinging.Store(false)
		}
	}
}

// Measure pings a node once, and takes in how long that took.
func (n *Node) Measure(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	began := time.Now()
	_, err := n.Lanes[0].Now(ctx)
	took := time.Since(began)
	if err != nil && !errors.Is(err, ErrNoTime) {
		return 0, err
	}
	n.Latency.Observe(took, time.Now())
	return took, nil
}

package route

import (
	"context"
	"errors"
	"time"
)

// errMoved ends a search because another partition holds the key by now.
var errMoved = errors.New("the partition was replaced")

// search is called when no usable hint exists. It returns a usable one as soon as there is one; or
// makes this request the one that looks for the leader, holding the hint's token, and returns the
// next replica to ask, with term 0.
func (a *attempt) search(ctx context.Context, p *Partition) (l *leader, looking bool, err error) {
	s, c := a.sender, p.hint
	for {
		changed := c.changed()
		if l := c.leader.Load(); l.usable() {
			return l, false, nil
		}
		a.noteLeaderless(p)
		select {
		case <-changed:
		case c.token <- struct{}{}:
			l, looking, err := a.walk(ctx, p)
			if !looking {
				<-c.token
			}
			return l, looking, err
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-s.life.Done():
			return nil, false, ErrClosed
		}
	}
}

// walk returns the next replica to ask, or a usable hint if one turned up. The caller holds the
// token. Since a hint was last learned, each replica is asked once without a wait; after that the
// backoff sets the pace, for all requests of the partition together.
func (a *attempt) walk(ctx context.Context, p *Partition) (l *leader, looking bool, err error) {
	s, c := a.sender, p.hint
	for waited := false; ; waited = true {
		if l := c.leader.Load(); l.usable() {
			return l, false, nil
		}
		misses := int(c.misses.Load())
		if waited || misses < len(p.voters) {
			if n := c.nextReplica(p); n != nil {
				c.misses.Add(1)
				return &leader{node: n, incarnation: n.Incarnation()}, true, nil
			}
		}
		s.metrics.retries[leaderlessBackoff.Name].Inc()
		c.misses.Add(1)
		if err := a.awaitChange(ctx, c,
			leaderlessBackoff.Delay(max(0, misses-len(p.voters)), s.random())); err != nil {
			return nil, false, err
		}
		// The table may show other replicas by now.
		fresh, err := a.lookUp()
		if err != nil || fresh.hint != c {
			return nil, false, errMoved
		}
		p = fresh
	}
}

// awaitChange waits, but no longer than until the hint's hint changes.
func (a *attempt) awaitChange(ctx context.Context, c *leaderHint, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.changed():
	case <-ctx.Done():
		return ctx.Err()
	case <-a.sender.life.Done():
		return ErrClosed
	}
	return nil
}

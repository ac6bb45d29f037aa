package route

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// errMoved ends a search because another partition holds the key by now.
var errMoved = errors.New("the partition was replaced")

// search is called when no usable hint exists. It returns a usable one as soon as there is one; or
// makes this request the one that looks for the leader, holding the hint's token, and returns the
// next replica to ask, with term 0.
func (a *attempt) search(ctx context.Context,
	p *Partition) (l *table.Hint, looking bool, err error) {
	s, c := a.sender, p.Hints
	for {
		changed := c.Changed()
		if l := c.Current(); l.Usable() {
			return l, false, nil
		}
		a.noteLeaderless(p)
		select {
		case <-changed:
		case c.Token <- struct{}{}:
			l, looking, err := a.walk(ctx, p)
			if !looking {
				<-c.Token
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
func (a *attempt) walk(ctx context.Context, p *Partition) (l *table.Hint, looking bool, err error) {
	s, c := a.sender, p.Hints
	for waited := false; ; waited = true {
		if l := c.Current(); l.Usable() {
			return l, false, nil
		}
		misses := int(c.Misses.Load())
		if waited || misses < len(p.Voters) {
			if n := c.NextReplica(p.Voters); n != nil {
				c.Misses.Add(1)
				return &table.Hint{Node: n, Incarnation: n.Incarnation()}, true, nil
			}
		}
		s.metrics.retries[leaderlessBackoff.Name].Inc()
		c.Misses.Add(1)
		if err := a.awaitChange(ctx, c,
			leaderlessBackoff.Delay(max(0, misses-len(p.Voters)), s.random())); err != nil {
			return nil, false, err
		}
		// The table may show other replicas by now.
		fresh, err := a.lookUp()
		if err != nil || fresh.Hints != c {
			return nil, false, errMoved
		}
		p = fresh
	}
}

// awaitChange waits, but no longer than until the hint's hint changes.
func (a *attempt) awaitChange(ctx context.Context, c *table.Hints, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.Changed():
	case <-ctx.Done():
		return ctx.Err()
	case <-a.sender.life.Done():
		return ErrClosed
	}
	return nil
}

// probe is a request that asks a replica which one leads. A write of term 0 is refused by every
// replica, by the leader with its term. Should that ever fail to hold, it is a write of no effect.
func probe(p *Partition) *kvpb.Request {
	key := p.Span.Start
	if len(key) == 0 {
		key = []byte{0}
	}
	return neverMet(key)
}

// neverMet is a compare-and-swap of a key that has no effect: it expects a version that no key has.
func neverMet(key []byte) *kvpb.Request {
	return &kvpb.Request{
		Command: &kvpb.Request_CompareAndSwap{CompareAndSwap: &kvpb.CompareAndSwapRequest{
			Key: key, Expected: &kvpb.CompareAndSwapRequest_Version{
				Version: &kvpb.Timestamp{Logical: 1}}, Delete: true,
		}}}
}

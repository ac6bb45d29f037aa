package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// protectInterval is how often the leader looks at all consumers: what it protects follows them
	// at that pace. protectRest is how long it rests in any case.
	protectInterval = 10 * time.Second
	protectRest     = time.Second
	// protectTimeout bounds one look.
	protectTimeout = 30 * time.Second
	// shortWindow is the GC window below which consumers are protected from the beginning: half of it
	// would be over before the nodes know.
	shortWindow = time.Minute
)

// consumers is the protection of what consumers have not read from garbage collection. Its
// goroutine runs from New to Close, and works while this member leads.
type consumers struct {
	// poked wakes it. Capacity 1.
	poked chan struct{}
	// total is how many consumers the cluster had at the last look, and those made since.
	total atomic.Int64
	// proven is what the last look has found of the time.
	proven atomic.Pointer[provenTime]
	// overdue is of its goroutine.
	overdue overdue
}

func (c *consumers) init() { c.poked = make(chan struct{}, 1) }

func (c *consumers) poke() {
	select {
	case c.poked <- struct{}{}:
	default:
	}
}

// protectConsumers follows the consumers while this member leads.
func (s *Server) protectConsumers() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l, changed := s.store.Leadership()
		poked := s.consumers.poked
		if l.Serving {
			next := protectInterval
			ctx, cancel := context.WithTimeout(s.ctx, protectTimeout)
			err := s.protect(ctx)
			cancel()
			if err != nil {
				next = protectRest
				if _, refused, _ := hintOf(err); !refused && s.ctx.Err() == nil {
					s.config.Logger.Warn("protecting what consumers have not read is interrupted; it will be "+
						"tried again", "error", err)
				}
			}
			timer.Reset(protectRest)
			select {
			case <-s.ctx.Done():
				return
			case <-changed:
				continue
			case <-timer.C:
			}
			timer.Reset(next - protectRest)
		} else {
			s.metrics.showConsumers(nil)
			poked = nil
		}
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-poked:
		case <-timer.C:
		}
	}
}

// lowestOf is the lowest position of the consumers that history is kept for; zero: there are none.
func lowestOf(all []storedConsumer) (lowest hlc.Timestamp) {
	for _, c := range all {
		if p := c.position(); !c.TooOld && (lowest.IsZero() || p.Less(lowest)) {
			lowest = p
		}
	}
	return lowest
}

// protection is what is to be protected in a keyspace whose consumers have come to lowest; zero:
// nothing has to be, for the GC window keeps it, and goes on to until there has been time to
// protect it.
//
// INVARIANT: without a proven time, nothing that is protected is given up. What the GC window keeps
// is known only with one: the clock of the leader alone may be behind, and what nodes collect
// because of it is lost.
func (s *Server) protection(ks storedKeyspace, lowest hlc.Timestamp, now times) hlc.Timestamp {
	if now.proven.IsZero() {
		known := rpc.FromClusterTimestamp(ks.Protected)
		if lowest.IsZero() || !known.IsZero() && known.Less(lowest) {
			return known
		}
		return lowest
	}
	window := s.config.DefaultGCWindow
	if ks.GcWindowSeconds != 0 {
		window = time.Duration(min(ks.GcWindowSeconds, maxGCWindow)) * time.Second
	}
	if window >= shortWindow && !lowest.Less(hlc.FromTime(now.latest().Add(-window/2))) {
		return hlc.Timestamp{}
	}
	return lowest
}

// protect looks at all consumers: it drops those that are beyond their keep, and have been for a
// while, and has the lowest positions of the others protected.
func (s *Server) protect(ctx context.Context) error {
	v, err := s.view(ctx)
	if err != nil {
		return err
	}
	if err := s.proveTime(v); err != nil {
		return s.toStatus(err)
	}
	keyspaces, err := loadKeyspaces(v)
	if err != nil {
		return s.toStatus(err)
	}
	consumers := map[uint32][]storedConsumer{}
	total := int64(0)
	for kv, err := range v.All([]byte(consumerPrefix)) {
		if err != nil {
			return s.toStatus(err)
		}
		c, err := decodeConsumer(kv)
		if err != nil {
			return s.toStatus(err)
		}
		consumers[c.KeyspaceId] = append(consumers[c.KeyspaceId], c)
		total++
	}
	s.consumers.total.Store(total)
	now := s.times()
	l, _ := s.store.Leadership()
	late := s.consumers.overdue.look(l.Term, s.config.Monotonic())
	var lags []consumerLag
	var errs []error
	for _, ks := range keyspaces {
		all := consumers[ks.Id]
		if ks.State == clusterpb.KeyspaceState_DROPPING || len(all) == 0 && ks.Protected == nil {
			continue
		}
		for _, c := range all {
			if c.TooOld || !c.tooFarBehind(now.proven) ||
				late.since(consumerKey(ks.id(), c.Name)) < min(c.keep(), dropAfter) {
				continue
			}
			if err := s.dropConsumer(ctx, ks, c); err != nil {
				errs = append(errs, fmt.Errorf("consumer %s of keyspace %s: %w",
					keys.Pretty([]byte(c.Name)), ks.Name, err))
			}
		}
		lags = append(lags, lagOf(ks.Name, all, now.likely()))
		protected := s.protection(ks, lowestOf(all), now)
		if protected == rpc.FromClusterTimestamp(ks.Protected) {
			continue
		}
		ks.Protected = rpc.ToClusterTimestamp(protected)
		// If the keyspace has changed, so may have its consumers: the next look is soon enough.
		if _, err := s.commit(ctx, []*storepb.Compare{store.ModifiedAt(keyspaceKey(ks.id()),
			ks.revision)}, store.Put(keyspaceKey(ks.id()), encode(ks.Keyspace))); err != nil {
			errs = append(errs, fmt.Errorf("keyspace %s: %w", ks.Name, err))
		}
	}
	late.done()
	s.metrics.showConsumers(lags)
	return errors.Join(errs...)
}

// dropConsumer ends what is kept for a consumer, unless it has moved meanwhile. The record stays,
// and says so to the next feed that names it: without the record it would begin at the present, and
// never know what it has missed.
func (s *Server) dropConsumer(ctx context.Context, ks storedKeyspace, c storedConsumer) error {
	c.TooOld = true
	key := consumerKey(ks.id(), c.Name)
	ok, err := s.commitEvent(ctx, &clusterpb.Event{Kind: "consumer", Keyspace: ks.Name,
		Reason:  "it is behind by more than " + c.keep().String(),
		Outcome: "history is not kept any more for consumer " + keys.Pretty([]byte(c.Name))},
		[]*storepb.Compare{store.ModifiedAt(key, c.revision)}, store.Put(key, encodeConsumer(c.Consumer)))
	if err != nil || !ok {
		c.TooOld = false
		return err
	}
	s.metrics.consumersDropped.Inc()
	s.config.Logger.Warn("a consumer of changes is too far behind: history is not kept for it any more",
		"keyspace", ks.Name, "consumer", c.Name, "position", c.position(), "keep", c.keep())
	return nil
}

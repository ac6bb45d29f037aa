package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// protectInterval is how often the leader looks at all consumers: what it protects follows them
	// at that pace. protectRest is how long it rests in any case.
	protectInterval = consumer.LookInterval
	protectRest     = time.Second
	// protectTimeout bounds one look.
	protectTimeout = consumer.LookTimeout
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
	overdue consumer.Overdue
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
				if _, refused, _ := hint.Of(err); !refused && s.ctx.Err() == nil {
					s.config.Logger.Warn("protecting what consumers have not read is interrupted; it will "+
						"be tried again", "error", err)
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
			s.metrics.consumers.Show(nil)
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

// protection is what is to be protected in a keyspace whose consumers have come to lowest.
func (s *Server) protection(
	ks meta.Keyspace, lowest hlc.Timestamp, now consumer.Times,
) hlc.Timestamp {
	window := s.config.DefaultGCWindow
	if ks.GcWindowSeconds != 0 {
		window = time.Duration(min(ks.GcWindowSeconds, maxGCWindow)) * time.Second
	}
	return consumer.Protection(rpc.FromClusterTimestamp(ks.Protected), lowest, window, now)
}

// protect looks at all consumers: it drops those that are beyond their keep, and have been for a
// while, and has the lowest positions of the others protected.
func (s *Server) protect(ctx context.Context) error {
	v, err := s.meta.View(ctx)
	if err != nil {
		return err
	}
	if err := s.proveTime(v); err != nil {
		return s.meta.Status(err)
	}
	keyspaces, err := meta.LoadKeyspaces(v)
	if err != nil {
		return s.meta.Status(err)
	}
	byKeyspace := map[uint32][]consumer.Record{}
	total := int64(0)
	for kv, err := range v.All([]byte(meta.ConsumerPrefix)) {
		if err != nil {
			return s.meta.Status(err)
		}
		c, err := decodeConsumer(kv)
		if err != nil {
			return s.meta.Status(err)
		}
		byKeyspace[c.KeyspaceId] = append(byKeyspace[c.KeyspaceId], c)
		total++
	}
	s.consumers.total.Store(total)
	now := s.times()
	l, _ := s.store.Leadership()
	late := s.consumers.overdue.Look(l.Term, s.config.Monotonic())
	var lags []consumer.Lag
	var errs []error
	for _, ks := range keyspaces {
		all := byKeyspace[ks.Id]
		if ks.State == clusterpb.KeyspaceState_DROPPING || len(all) == 0 && ks.Protected == nil {
			continue
		}
		for _, c := range all {
			if c.TooOld || !c.TooFarBehind(now.Proven) ||
				late.Since(consumerKey(ks.ID(), c.Name)) < min(c.Keep(), consumer.DropAfter) {
				continue
			}
			if err := s.dropConsumer(ctx, ks, c); err != nil {
				errs = append(errs, fmt.Errorf("consumer %s of keyspace %s: %w",
					keys.Pretty([]byte(c.Name)), ks.Name, err))
			}
		}
		lags = append(lags, consumer.LagOf(ks.Name, all, now.Likely()))
		protected := s.protection(ks, consumer.Lowest(all), now)
		if protected == rpc.FromClusterTimestamp(ks.Protected) {
			continue
		}
		ks.Protected = rpc.ToClusterTimestamp(protected)
		// If the keyspace has changed, so may have its consumers: the next look is soon enough.
		if _, err := s.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(ks.ID()),
			ks.Revision)}, store.Put(meta.KeyspaceKey(ks.ID()), meta.Encode(ks.Keyspace))); err != nil {
			errs = append(errs, fmt.Errorf("keyspace %s: %w", ks.Name, err))
		}
	}
	late.Done()
	s.metrics.consumers.Show(lags)
	return errors.Join(errs...)
}

// dropConsumer ends what is kept for a consumer, unless it has moved meanwhile. The record stays,
// and says so to the next feed that names it: without the record it would begin at the present, and
// never know what it has missed.
func (s *Server) dropConsumer(ctx context.Context, ks meta.Keyspace, c consumer.Record) error {
	c.TooOld = true
	key := consumerKey(ks.ID(), c.Name)
	ok, err := s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "consumer", Keyspace: ks.Name,
		KeyspaceId: uint64(ks.ID()),
		Reason:     "it is behind by more than " + c.Keep().String(),
		Outcome:    "history is not kept any more for consumer " + keys.Pretty([]byte(c.Name))},
		[]*storepb.Compare{store.ModifiedAt(key, c.Revision)},
		store.Put(key, encodeConsumer(c.Consumer)))
	if err != nil || !ok {
		c.TooOld = false
		return err
	}
	s.metrics.consumers.Dropped.Inc()
	s.config.Logger.Warn("a consumer of changes is too far behind: history is not kept for "+
		"it any more",
		"keyspace", ks.Name, "consumer", c.Name, "position", c.At(), "keep", c.Keep())
	return nil
}

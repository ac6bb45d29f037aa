package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// protectRest is the shortest pause of the leader between two looks at all consumers.
const protectRest = time.Second

// Config has the dependencies of a Keeper. All fields must be set.
type Config struct {
	Meta  *meta.Records
	Store *store.Store
	// Clocks returns the least amount by which the clocks of a majority of the live nodes are ahead of
	// the monotonic clock. It returns false if no majority has reported during the term.
	Clocks func(term uint64, alive map[uint64]bool) (ahead int64, ok bool)
	// MaxClockAhead is the maximum by which a position may be ahead of this member's clock.
	MaxClockAhead time.Duration
	// MaxConsumers limits the consumers of all keyspaces.
	MaxConsumers int
	Physical     hlc.Physical
	Monotonic    hlc.Monotonic
	Logger       *slog.Logger
}

// Keeper answers calls about consumers of changes. While this member leads, it protects the history
// that consumers have not read from garbage collection.
type Keeper struct {
	config  Config
	meta    *meta.Records
	metrics *Metrics
	// poked wakes Run. Capacity 1.
	poked chan struct{}
	// total is the number of consumers of the cluster: the number at the last look, plus the consumers
	// created since.
	total atomic.Int64
	// proven is the proven time of the last look.
	proven atomic.Pointer[provenTime]
	// overdue is used only by the goroutine of Run.
	overdue Overdue
}

// NewKeeper makes the Keeper of a member.
func NewKeeper(config Config) *Keeper {
	return &Keeper{config: config, meta: config.Meta, metrics: NewMetrics(),
		poked: make(chan struct{}, 1)}
}

// Collectors returns the metrics.
func (k *Keeper) Collectors() []prometheus.Collector { return k.metrics.Collectors() }

func (k *Keeper) poke() {
	select {
	case k.poked <- struct{}{}:
	default:
	}
}

// Run protects history for consumers while this member leads, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l, changed := k.config.Store.Leadership()
		poked := k.poked
		if l.Serving {
			next := LookInterval
			limited, cancel := context.WithTimeout(ctx, LookTimeout)
			err := k.protect(limited)
			cancel()
			if err != nil {
				next = protectRest
				if _, refused, _ := hint.Of(err); !refused && ctx.Err() == nil {
					k.config.Logger.Warn("protecting what consumers have not read is interrupted; it will "+
						"be tried again", "error", err)
				}
			}
			timer.Reset(protectRest)
			select {
			case <-ctx.Done():
				return
			case <-changed:
				continue
			case <-timer.C:
			}
			timer.Reset(next - protectRest)
		} else {
			k.metrics.Show(nil)
			poked = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-poked:
		case <-timer.C:
		}
	}
}

// protection returns the timestamp to protect in a keyspace whose lowest position of consumers is
// lowest.
func (k *Keeper) protection(
	ks meta.Keyspace, lowest hlc.Timestamp, now Times,
) hlc.Timestamp {
	window := meta.DefaultGCWindow
	if ks.GcWindowSeconds != 0 {
		window = time.Duration(min(ks.GcWindowSeconds, meta.MaxGCWindow)) * time.Second
	}
	return Protection(wire.FromClusterTimestamp(ks.Protected), lowest, window, now)
}

// protect looks at all consumers. It drops the consumers that have been behind by more than their
// keep for a while, and protects the lowest positions of the others.
func (k *Keeper) protect(ctx context.Context) error {
	v, err := k.meta.View(ctx)
	if err != nil {
		return err
	}
	if err := k.proveTime(v); err != nil {
		return k.meta.Status(err)
	}
	keyspaces, err := meta.LoadKeyspaces(v)
	if err != nil {
		return k.meta.Status(err)
	}
	byKeyspace := map[uint32][]Record{}
	total := int64(0)
	for kv, err := range v.All([]byte(meta.ConsumerPrefix)) {
		if err != nil {
			return k.meta.Status(err)
		}
		c, err := decodeConsumer(kv)
		if err != nil {
			return k.meta.Status(err)
		}
		byKeyspace[c.KeyspaceId] = append(byKeyspace[c.KeyspaceId], c)
		total++
	}
	k.total.Store(total)
	now := k.times()
	l, _ := k.config.Store.Leadership()
	late := k.overdue.Look(l.Term, k.config.Monotonic())
	var lags []Lag
	var errs []error
	for _, ks := range keyspaces {
		all := byKeyspace[ks.Id]
		if ks.State == clusterpb.KeyspaceState_DROPPING || len(all) == 0 && ks.Protected == nil {
			continue
		}
		for _, c := range all {
			if c.TooOld || !c.TooFarBehind(now.Proven) ||
				late.Since(consumerKey(ks.ID(), c.Name)) < min(c.Keep(), DropAfter) {
				continue
			}
			if err := k.dropConsumer(ctx, ks, c); err != nil {
				errs = append(errs, fmt.Errorf("consumer %s of keyspace %s: %w",
					keys.Pretty([]byte(c.Name)), ks.Name, err))
			}
		}
		lags = append(lags, LagOf(ks.Name, all, now.Likely()))
		protected := k.protection(ks, Lowest(all), now)
		if protected == wire.FromClusterTimestamp(ks.Protected) {
			continue
		}
		ks.Protected = wire.ToClusterTimestamp(protected)
		// If the keyspace has changed, its consumers may have changed too. The next look handles that.
		if _, err := k.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(ks.ID()),
			ks.Revision)}, store.Put(meta.KeyspaceKey(ks.ID()), meta.Encode(ks.Keyspace))); err != nil {
			errs = append(errs, fmt.Errorf("keyspace %s: %w", ks.Name, err))
		}
	}
	late.Done()
	k.metrics.Show(lags)
	return errors.Join(errs...)
}

// dropConsumer ends the protection of a consumer, unless the consumer has moved meanwhile. The
// record stays, so that the next feed of this consumer is told of the loss. Without the record,
// that feed would begin at the present without knowing that it missed changes.
func (k *Keeper) dropConsumer(ctx context.Context, ks meta.Keyspace, c Record) error {
	c.TooOld = true
	key := consumerKey(ks.ID(), c.Name)
	ok, err := k.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "consumer", Keyspace: ks.Name,
		KeyspaceId: uint64(ks.ID()),
		Reason:     "it is behind by more than " + c.Keep().String(),
		Outcome:    "history is not kept any more for consumer " + keys.Pretty([]byte(c.Name))},
		[]*storepb.Compare{store.ModifiedAt(key, c.Revision)},
		store.Put(key, encodeConsumer(c.Consumer)))
	if err != nil || !ok {
		c.TooOld = false
		return err
	}
	k.metrics.Dropped.Inc()
	k.config.Logger.Warn("a consumer of changes is too far behind: history is not kept for "+
		"it any more",
		"keyspace", ks.Name, "consumer", c.Name, "position", c.At(), "keep", c.Keep())
	return nil
}

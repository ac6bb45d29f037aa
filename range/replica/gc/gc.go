package gc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Replica is what a Collector needs of its replica.
type Replica interface {
	ID() keys.PartitionID
	Descriptor() *clusterpb.Partition
	Stats() storage.Stats
	// Threshold returns the garbage collection threshold.
	Threshold() hlc.Timestamp
	// BeginCollection is called at the beginning of every collection.
	BeginCollection()
	// MayCollect reports whether the entries of a collection find disk space.
	MayCollect() bool
	// Propose evaluates an entry in its turn, with no write pending, and waits until the entry is
	// applied here. Nothing is proposed if evaluate returns false. When ctx ends first, the entry
	// may still take effect.
	Propose(ctx context.Context, kind proposal.Kind,
		evaluate func(Evaluation) (propose bool, err error)) (proposed bool, err error)
	// Enter announces a user of the state database, until Exit; false: the replica is closed.
	Enter() bool
	Exit()
	// Passed reports that every clock has passed a timestamp.
	Passed(ts hlc.Timestamp) bool
}

// Evaluation is the evaluation of one entry. It is valid until evaluate returns.
type Evaluation interface {
	// Descriptor returns the partition's descriptor before the entry.
	Descriptor() *clusterpb.Partition
	// Entry returns the part of the entry that evaluate fills.
	Entry() *proposal.Entry
	// Batch returns the batch of the entry.
	Batch() *engine.StateBatch
	// Removed accounts for versions that the batch removes. If sole is set, nothing else is evaluated
	// until the fate of the entry is known.
	Removed(garbage *mvcc.GarbageResult, sole bool)
}

// Config configures New.
type Config struct {
	Replica Replica
	State   *engine.State
	Clock   *hlc.Clock
	Metrics *Metrics
	// Resolver, if not nil, releases the locks of committed transactions in other partitions.
	// Without it the records of transactions that have had locks stay for ever.
	Resolver txn.Resolver
	// DiskFull, if not nil, reports that there is no room for writes at present.
	DiskFull func() bool
	// Window is how long overwritten versions stay readable; negative: for ever.
	Window time.Duration
	// Chunk bounds what one removal entry holds, and how much is read for it. Zero: a default.
	Chunk mvcc.GarbageLimits
}

// Collector collects the garbage of one replica's partition while that replica leads.
type Collector struct {
	Config
	// window is a time.Duration; negative: nothing is collected.
	window atomic.Int64
	// protected is the timestamp whose versions have to stay readable, whatever the window says;
	// nil or zero: none.
	protected atomic.Pointer[hlc.Timestamp]
	// progress says how far collections have come. Only the running collection may touch it.
	progress progress
	expiries expiries

	mu struct {
		sync.Mutex
		// running is set while Collect runs.
		running bool
		// mayHaveRecords is set if there may be records to look at. recordsSet counts the batches
		// of entries that have set records.
		mayHaveRecords bool
		recordsSet     uint64
	}
}

// New returns a Collector.
func New(c Config) *Collector {
	g := &Collector{Config: c}
	if g.Chunk == (mvcc.GarbageLimits{}) {
		g.Chunk = defaultChunk
	}
	g.window.Store(int64(c.Window))
	return g
}

// Result says what a collection did.
type Result struct {
	// Threshold is the lowest timestamp that can still be read.
	Threshold hlc.Timestamp
	// Versions and Bytes count what was removed.
	Versions, Bytes uint64
	// Swept is set if all versions were looked through, because some might have been removable.
	Swept bool
}

// defaultChunk bounds what one removal entry holds, and how much is read for it.
var defaultChunk = mvcc.GarbageLimits{Versions: 2000, Bytes: 16 << 20, Scanned: 20_000}

// chunkFull bounds the versions of one removal entry on a disk without room: the entry itself takes
// some.
const chunkFull = 250

var errClosed = errors.New("the replica is closed")

// ErrNoRoom is returned if there is too little room for the entries of garbage collection. What was
// removed before has given its room back, or will.
var ErrNoRoom = errors.New("no disk space for the entries of garbage collection")

// MayHaveGarbage reports whether there may be something to collect, now or when it is older or has
// expired.
func (g *Collector) MayHaveGarbage() bool {
	s := g.Replica.Stats()
	g.mu.Lock()
	defer g.mu.Unlock()
	return s.Versions > s.LiveKeys || s.Expiring > 0 || g.mu.mayHaveRecords
}

// SetWindow sets how long overwritten versions stay readable; negative: for ever.
func (g *Collector) SetWindow(window time.Duration) { g.window.Store(int64(window)) }

// SetProtected sets the timestamp whose versions stay readable, whatever the window says: a
// consumer of the partition's changes has read no further. Zero: none.
func (g *Collector) SetProtected(at hlc.Timestamp) { g.protected.Store(&at) }

// progress says which span collections have looked through completely, and at which threshold.
// Without a higher threshold there is nothing more to find in the same span: later writes are above
// it.
type progress struct {
	threshold  hlc.Timestamp
	generation uint64
}

// RecordsFound notes whether a state that was opened, or replaced, has transaction records.
func (g *Collector) RecordsFound(any bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.mayHaveRecords = any
}

// RecordsSet notes that applied entries have set records.
func (g *Collector) RecordsSet() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.mayHaveRecords = true
	g.mu.recordsSet++
}

// WillExpire notes when a version that is written expires; 0: never.
func (g *Collector) WillExpire(at int64) { g.expiries.wrote(at) }

// ForgetExpiries is called at the end of a leadership epoch: later writes may go unnoticed.
func (g *Collector) ForgetExpiries() { g.expiries.forget() }

// limitThreshold lowers a threshold to the protected timestamp.
//
// INVARIANT: no threshold is raised above the protected timestamp.
func (g *Collector) limitThreshold(threshold hlc.Timestamp) hlc.Timestamp {
	if at := g.protected.Load(); at != nil && !at.IsZero() {
		return hlc.Min(threshold, *at)
	}
	return threshold
}

// Collect raises the garbage collection threshold to now less the window, but not above the
// protected timestamp, and removes what no client can read any more. It does nothing, and costs
// nothing, if as far as is known the partition holds no transaction record, no version but the
// newest of keys with a value, and no value that has expired at that threshold. Only a leader can
// collect; one collection runs at a time.
//
// The threshold is never above the clock: later writes are above it.
func (g *Collector) Collect(ctx context.Context, now hlc.Timestamp) (Result, error) {
	g.Replica.BeginCollection()
	result := Result{Threshold: g.Replica.Threshold()}
	stats := g.Replica.Stats()
	window := time.Duration(g.window.Load())
	threshold := g.limitThreshold(now.Add(-window))
	g.mu.Lock()
	nothing := stats.Versions == stats.LiveKeys && !g.mu.mayHaveRecords &&
		(stats.Expiring == 0 || threshold.Wall < g.expiries.first())
	if window < 0 || nothing || g.mu.running {
		g.mu.Unlock()
		return result, nil
	}
	g.mu.running = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.mu.running = false
		g.mu.Unlock()
	}()
	err := g.collect(ctx, threshold, &result)
	if err != nil {
		return result, fmt.Errorf("partition %s: collecting garbage: %w", g.Replica.ID(), err)
	}
	return result, nil
}

func (g *Collector) collect(ctx context.Context, threshold hlc.Timestamp, result *Result) error {
	if !g.Replica.MayCollect() {
		return ErrNoRoom
	}
	_, err := g.Replica.Propose(ctx, proposal.KindThreshold, func(e Evaluation) (bool, error) {
		// Again: a consumer may have begun while this waited for its turn.
		e.Entry().Threshold = hlc.Min(g.limitThreshold(threshold), g.Clock.Now())
		return result.Threshold.Less(e.Entry().Threshold), nil
	})
	if err != nil {
		return err
	}
	result.Threshold = g.Replica.Threshold()
	if err := g.sweep(ctx, result); err != nil {
		return err
	}
	return g.collectRecords(ctx)
}

// sweep removes the versions that no read at or above the threshold sees.
func (g *Collector) sweep(ctx context.Context, result *Result) error {
	now := progress{result.Threshold, g.Replica.Descriptor().GetGeneration()}
	if g.progress == now {
		return nil
	}
	g.expiries.begin()
	for more, resume := true, []byte(nil); more; {
		if !g.Replica.MayCollect() {
			return ErrNoRoom
		}
		limits := g.Chunk
		if g.DiskFull != nil && g.DiskFull() {
			limits.Versions = min(limits.Versions, chunkFull)
		}
		var found mvcc.GarbageResult
		remove := func(e Evaluation) (bool, error) {
			span := keys.PartitionSpan(e.Descriptor())
			if resume != nil {
				span.Start = resume
			}
			garbage, err := mvcc.Garbage(g.State, span, g.Replica.Threshold(), limits)
			if err != nil {
				return false, err
			}
			more, resume, found = garbage.More, garbage.Resume, garbage
			g.expiries.met(garbage.NextExpiry)
			if len(garbage.Versions) == 0 {
				return false, nil
			}
			if err := mvcc.Remove(e.Batch(), garbage.Versions); err != nil {
				return false, err
			}
			// INVARIANT: a key's newest version is removed only if nothing is evaluated until it is
			// gone: a write in between would find it in the engine, and count the key as live
			// before.
			e.Removed(&garbage, len(garbage.Expired) > 0)
			g.Metrics.expired.Add(float64(len(garbage.Expired)))
			return true, nil
		}
		proposed, err := g.Replica.Propose(ctx, proposal.KindRemove, remove)
		if err != nil {
			return err
		}
		if proposed {
			result.Versions += uint64(len(found.Versions))
			result.Bytes += uint64(found.Bytes)
			g.Metrics.removed.Add(float64(len(found.Versions)))
		}
	}
	g.expiries.end()
	g.progress, result.Swept = now, true
	return nil
}

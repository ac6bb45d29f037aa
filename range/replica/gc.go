package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// Garbage collection is two kinds of entry. The first raises the threshold: nothing below it can be
// read from then on. The others remove versions that no read at or above the threshold sees. Both
// are evaluated in their turn, with no write pending, so what they find is exactly what there is
// when they are applied.

// GCResult is what a collection did.
type GCResult struct {
	// Threshold is the lowest timestamp that can still be read.
	Threshold hlc.Timestamp
	// Versions and Bytes were removed.
	Versions, Bytes uint64
	// Swept: all versions were looked through, because something might have been removed.
	Swept bool
}

// gcChunk is how much one removal entry holds, and looks at, at most.
var gcChunk = mvcc.GarbageLimits{Versions: 2000, Bytes: 16 << 20, Scanned: 20_000}

// gcChunkFull is how many versions one removal entry holds at most on a disk without room: the
// entry itself takes some.
const gcChunkFull = 250

// ErrNoRoomToCollect says that there is too little room for the entries of garbage collection. What
// was removed before has given its room back, or will.
var ErrNoRoomToCollect = errors.New("no disk space for the entries of garbage collection")

// MayHaveGarbage says whether there may be something to collect, now or when it is older, or has
// expired.
func (r *Replica) MayHaveGarbage() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.mu.applied.Stats
	return s.Versions > s.LiveKeys || s.Expiring > 0 || r.mu.records.mayHave
}

// SetGCWindow sets for how long overwritten versions stay readable; negative: for ever.
func (r *Replica) SetGCWindow(window time.Duration) { r.gcWindow.Store(int64(window)) }

// SetProtected sets the timestamp at which everything stays readable, whatever the window says: a
// consumer of the partition's changes has read no further. Zero: none.
func (r *Replica) SetProtected(at hlc.Timestamp) { r.protected.Store(&at) }

// sweep is what a collection has looked through to the end: all versions, at a threshold. Without a
// higher one, there is nothing more to find in the same span: what is written later is above it.
type sweep struct {
	threshold  hlc.Timestamp
	generation uint64
}

// limitThreshold lowers a threshold to what is protected.
//
// INVARIANT: no threshold is raised above what is protected.
func (r *Replica) limitThreshold(threshold hlc.Timestamp) hlc.Timestamp {
	if at := r.protected.Load(); at != nil && !at.IsZero() {
		return hlc.Min(threshold, *at)
	}
	return threshold
}

// CollectGarbage raises the garbage collection threshold to now less the window, but not above what
// is protected, and removes what no client can read any more. It does nothing, and costs nothing,
// while the partition holds no transaction record, and no version but the newest of keys that have
// a value, of which none has expired at that threshold, as far as is known. Only a leader can; one
// collection runs at a time. It also returns the memory of the timestamp cache.
//
// The threshold is never above the clock: what is written later is above it.
func (r *Replica) CollectGarbage(ctx context.Context, now hlc.Timestamp) (GCResult, error) {
	r.mu.Lock()
	result := GCResult{Threshold: r.mu.applied.Threshold}
	stats := r.mu.applied.Stats
	r.mu.cache.Release()
	window := time.Duration(r.gcWindow.Load())
	threshold := r.limitThreshold(now.Add(-window))
	nothing := stats.Versions == stats.LiveKeys && !r.mu.records.mayHave &&
		(stats.Expiring == 0 || threshold.Wall < r.expiries.first())
	if window < 0 || nothing || r.mu.collecting {
		r.mu.Unlock()
		return result, nil
	}
	r.mu.collecting = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.mu.collecting = false
		r.mu.Unlock()
	}()
	err := r.collect(ctx, threshold, &result)
	if err != nil {
		return result, fmt.Errorf("partition %s: collecting garbage: %w", r.id, err)
	}
	return result, nil
}

func (r *Replica) collect(ctx context.Context, threshold hlc.Timestamp, result *GCResult) error {
	if !r.MayCollect() {
		return ErrNoRoomToCollect
	}
	err := r.command(ctx, proposal.KindThreshold,
		func(e *evaluation, p *proposal.Entry) (bool, error) {
			// Once more: a consumer may have begun while this waited for its turn.
			p.Threshold = hlc.Min(r.limitThreshold(threshold), r.node.Clock.Now())
			if !result.Threshold.Less(p.Threshold) {
				return false, errNothingToDo
			}
			return true, nil
		})
	if err != nil && !errors.Is(err, errNothingToDo) {
		return err
	}
	result.Threshold = *r.threshold.Load()
	if err := r.sweep(ctx, result); err != nil {
		return err
	}
	return r.collectRecords(ctx)
}

// sweep removes the versions that no read at or above the threshold sees.
func (r *Replica) sweep(ctx context.Context, result *GCResult) error {
	now := sweep{result.Threshold, r.Descriptor().GetGeneration()}
	if r.swept == now {
		return nil
	}
	r.expiries.begin()
	for more, resume := true, []byte(nil); more; {
		if !r.MayCollect() {
			return ErrNoRoomToCollect
		}
		limits := gcChunk
		if r.node.DiskFull != nil && r.node.DiskFull() {
			limits.Versions = min(limits.Versions, gcChunkFull)
		}
		var found mvcc.GarbageResult
		remove := func(e *evaluation, p *proposal.Entry) (bool, error) {
			span := keys.PartitionSpan(e.Descriptor)
			if resume != nil {
				span.Start = resume
			}
			garbage, err := mvcc.Garbage(r.state, span, *r.threshold.Load(), limits)
			if err != nil {
				return false, err
			}
			more, resume, found = garbage.More, garbage.Resume, garbage
			r.expiries.met(garbage.NextExpiry)
			if len(garbage.Versions) == 0 {
				return false, errNothingToDo
			}
			e.batch = r.state.NewBatch()
			if err := mvcc.Remove(e.batch, garbage.Versions); err != nil {
				return false, err
			}
			e.removed(&garbage)
			// INVARIANT: a key's newest version goes only if nothing is evaluated until it has gone: a
			// write that came next would find it in the engine, and count the key as live before.
			e.proposal.sole = len(garbage.Expired) > 0
			r.node.Metrics.expired.Add(float64(len(garbage.Expired)))
			return true, nil
		}
		err := r.command(ctx, proposal.KindRemove, remove)
		if errors.Is(err, errNothingToDo) {
			continue
		}
		if err != nil {
			return err
		}
		result.Versions += uint64(len(found.Versions))
		result.Bytes += uint64(found.Bytes)
		r.node.Metrics.removed.Add(float64(len(found.Versions)))
	}
	r.expiries.end()
	r.swept, result.Swept = now, true
	return nil
}

// errNothingToDo ends the evaluation of a command that has nothing to propose.
var errNothingToDo = errors.New("nothing to do")

// errAgain has a command evaluated again for the next entry: this one is full.
var errAgain = errors.New("the entry is full")

func oldDeletedRange(value []byte, threshold hlc.Timestamp) (bool, error) {
	at, err := command.DeletedRangeAt(value)
	return at.LessEq(threshold), err
}

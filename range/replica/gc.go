package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/txn"
)

// Garbage collection is two kinds of entry. The first raises the threshold: nothing below it can be read from then on. The
// others remove versions that no read at or above the threshold sees. Both are evaluated in their turn, with nothing in
// flight, so what they find is exactly what there is when they are applied.

// GCResult is what a collection did.
type GCResult struct {
	// Threshold is the lowest timestamp that can still be read.
	Threshold hlc.Timestamp
	// Versions and Bytes were removed.
	Versions, Bytes uint64
}

// gcChunk is how much one removal entry holds, and looks at, at most.
var gcChunk = mvcc.GarbageLimits{Versions: 2000, Bytes: 16 << 20, Scanned: 20_000}

// MayHaveGarbage says whether there may be something to collect, now or when it is older.
func (r *Replica) MayHaveGarbage() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.applied.stats.Versions > r.mu.applied.stats.LiveKeys || r.mu.mayHaveRecords
}

// SetGCWindow sets for how long overwritten versions stay readable; negative: for ever.
func (r *Replica) SetGCWindow(window time.Duration) { r.gcWindow.Store(int64(window)) }

// CollectGarbage raises the garbage collection threshold to now less the window, and removes what nobody can read any more. It
// does nothing, and costs nothing, while the partition holds no transaction record, and no version but the newest of keys that have a value.
// Only a leader can; one collection runs at a time. It also returns the memory of the timestamp cache.
//
// The threshold is never above the clock: what is written later is above it.
func (r *Replica) CollectGarbage(ctx context.Context, now hlc.Timestamp) (GCResult, error) {
	r.mu.Lock()
	result := GCResult{Threshold: r.mu.applied.threshold}
	stats := r.mu.applied.stats
	r.mu.cache.release()
	window := time.Duration(r.gcWindow.Load())
	if window < 0 || (stats.Versions == stats.LiveKeys && !r.mu.mayHaveRecords) || r.mu.collecting {
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
	err := r.collect(ctx, now.Add(-window), &result)
	if err != nil {
		return result, fmt.Errorf("partition %s: collecting garbage: %w", r.id, err)
	}
	return result, nil
}

func (r *Replica) collect(ctx context.Context, threshold hlc.Timestamp, result *GCResult) error {
	err := r.command(ctx, kindThreshold, func(e *evaluation, p *payload) (bool, error) {
		p.threshold = hlc.Min(threshold, r.node.Clock.Now())
		if !result.Threshold.Less(p.threshold) {
			return false, errNothingToDo
		}
		return true, nil
	})
	if err != nil && !errors.Is(err, errNothingToDo) {
		return err
	}
	result.Threshold = *r.threshold.Load()
	for more, resume := true, []byte(nil); more; {
		var found mvcc.GarbageResult
		err := r.command(ctx, kindRemove, func(e *evaluation, p *payload) (bool, error) {
			span := keys.PartitionSpan(e.descriptor)
			if resume != nil {
				span.Start = resume
			}
			garbage, err := mvcc.Garbage(r.state, span, *r.threshold.Load(), gcChunk)
			if err != nil {
				return false, err
			}
			more, resume, found = garbage.More, garbage.Resume, garbage
			if len(garbage.Versions) == 0 {
				return false, errNothingToDo
			}
			e.batch = r.state.NewBatch()
			if err := mvcc.Remove(e.batch, garbage.Versions); err != nil {
				return false, err
			}
			e.delta.versions -= int64(len(garbage.Versions))
			e.delta.bytes -= garbage.Bytes
			return true, nil
		})
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
	return r.collectRecords(ctx)
}

// errNothingToDo ends the evaluation of a command that has nothing to propose.
var errNothingToDo = errors.New("nothing to do")

// collectRecords removes the records of DeleteRange whose retries would be refused, and those of transactions that nobody can ask about.
func (r *Replica) collectRecords(ctx context.Context) error {
	for more := true; more; {
		err := r.command(ctx, kindRemove, func(e *evaluation, _ *payload) (bool, error) {
			found, err := r.oldRecords(keys.PartitionSpan(e.descriptor), *r.threshold.Load())
			if err != nil {
				return false, err
			}
			if more = len(found.old) == gcChunk.Versions; !more {
				r.mu.Lock()
				// Nothing is in flight while this is evaluated.
				r.mu.mayHaveRecords = found.transactions
				r.mu.Unlock()
			}
			if len(found.old) == 0 {
				return false, errNothingToDo
			}
			e.batch = r.state.NewBatch()
			for _, key := range found.old {
				if err := e.batch.Delete(key, nil); err != nil {
					return false, err
				}
			}
			return true, nil
		})
		if err != nil && !errors.Is(err, errNothingToDo) {
			return err
		}
	}
	return nil
}

// foundRecords is what a look at the anchored records found.
type foundRecords struct {
	// old are the keys of those that may go.
	old [][]byte
	// transactions says that records of transactions stay.
	transactions bool
}

// oldRecords finds records that may go at a threshold, one chunk at most.
func (r *Replica) oldRecords(span keys.Span, threshold hlc.Timestamp) (found foundRecords, err error) {
	anchors := keys.AnchorSpan(span)
	i, err := r.state.NewIter(&pebble.IterOptions{LowerBound: anchors.Start, UpperBound: anchors.End})
	if err != nil {
		return found, err
	}
	defer func() {
		if closeErr := i.Close(); err == nil {
			err = closeErr
		}
	}()
	for i.First(); i.Valid() && len(found.old) < gcChunk.Versions; i.Next() {
		_, suffix, err := keys.DecodeAnchorKey(i.Key())
		if err != nil {
			return found, fmt.Errorf("%w: %w", errRecord, err)
		}
		of, _ := txn.Classify(suffix)
		if of == txn.AnchoredLock {
			continue // it goes when its transaction is over
		}
		value, err := i.ValueAndErr()
		if err != nil {
			return found, err
		}
		var old bool
		if of == txn.AnchoredRecord {
			old, err = oldTransaction(value, threshold)
			found.transactions = found.transactions || !old
		} else {
			old, err = oldDeletedRange(value, threshold)
		}
		if err != nil {
			return found, fmt.Errorf("record %s: %w", keys.PrettyState(i.Key()), err)
		}
		if old {
			found.old = append(found.old, append([]byte(nil), i.Key()...))
		}
	}
	return found, i.Error()
}

func oldDeletedRange(value []byte, threshold hlc.Timestamp) (bool, error) {
	record, err := decodeDeletedRange(value)
	return record.timestamp.LessEq(threshold), err
}

// oldTransaction: what is decided goes when the threshold has come to that; what is pending when nothing was heard of it since. Its
// transaction began below the threshold then, so nobody makes the record anew.
func oldTransaction(value []byte, threshold hlc.Timestamp) (bool, error) {
	record, err := txn.DecodeRecord(value)
	if err != nil {
		return false, err
	}
	if record.Decided() {
		return record.Collectible(threshold), nil
	}
	return record.Heard < threshold.Wall && record.Started.Less(threshold), nil
}

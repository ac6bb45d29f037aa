package gc

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/txn"
)

// A record is collected when nothing can need it any more. Time alone does not tell that of a
// COMMITTED one: as long as there is a lock of the transaction anywhere, a request that meets it
// has to be told that it is a write. The client resolves its locks when it has committed, and so
// does a server that meets them, but a participant may have been without a quorum, or keep what is
// old for longer than this partition does. So before such a record is removed, its participants are
// told the outcome once more, and have to answer. That is cheap: one request to a partition speaks
// for a thousand transactions, and one that has nothing to resolve proposes nothing. Nothing is
// stored of it either: a record goes in the same turn in which all have answered, or is asked about
// anew in the next.

// collectRecords removes the records of DeleteRange whose retries would be refused, and those of
// transactions that nothing can ask about.
func (g *Collector) collectRecords(ctx context.Context) error {
	var began uint64 // what recordsSet was at the first look
	stay := false    // records of transactions were found that stay
	for first, from := true, []byte(nil); first || from != nil; first = false {
		chunk, err := g.resolveOld(ctx, from)
		if err != nil {
			return err
		}
		from = chunk.next
		collected := 0 // belongs to the evaluation until that is done
		remove := func(e Evaluation) (bool, error) {
			var found foundRecords
			var err error
			if e.Descriptor().GetGeneration() != chunk.generation {
				stay = true // it is not all of this partition any more
			} else if found, err = g.oldRecords(chunk, g.Replica.Threshold()); err != nil {
				return false, err
			}
			stay = stay || found.transactions
			// No write is pending while this is evaluated.
			g.mu.Lock()
			if first {
				began = g.mu.recordsSet
			}
			if chunk.next == nil && !stay && began == g.mu.recordsSet {
				g.mu.mayHaveRecords = false
			}
			g.mu.Unlock()
			collected = found.ended
			for _, key := range found.old {
				if err := e.Batch().Delete(key, nil); err != nil {
					return false, err
				}
			}
			return len(found.old) > 0, nil
		}
		proposed, err := g.Replica.Propose(ctx, proposal.KindRemove, remove)
		if err != nil {
			return err
		}
		if proposed {
			g.Metrics.recordsCollected.Add(float64(collected))
		}
	}
	return nil
}

// recordChunk is a part of the anchored records, with what was found out about the transactions in
// it.
type recordChunk struct {
	// span is in state keys; next is where the next one begins, nil if there is none.
	span keys.Span
	next []byte
	// generation is of the partition's span.
	generation uint64
	// settled are the committed transactions that have no lock anywhere any more.
	settled map[txn.ID]struct{}
}

// resolveOld looks at the records from a state key on, as many as are collected at once, and has
// the locks resolved of those committed transactions whose time has come. It reads beside
// everything else: of a record that was decided long ago nothing changes.
func (g *Collector) resolveOld(ctx context.Context, from []byte) (recordChunk, error) {
	d := g.Replica.Descriptor()
	chunk := recordChunk{span: keys.AnchorSpan(keys.PartitionSpan(d)), generation: d.GetGeneration()}
	if from != nil {
		chunk.span.Start = from
	}
	if storage.CompareKeys(chunk.span.Start, chunk.span.End) >= 0 {
		return chunk, nil // what is left has split off
	}
	threshold := g.Replica.Threshold()
	var old []txn.Committed
	records, participants := 0, 0
	if !g.Replica.Enter() {
		return chunk, errClosed
	}
	err := g.eachAnchored(chunk.span,
		func(n int, key []byte, of txn.Anchored, id txn.ID, value []byte) (bool, error) {
			if n == g.Chunk.Scanned || records == g.Chunk.Versions || participants >= g.Chunk.Scanned {
				chunk.next = bytes.Clone(key)
				chunk.span.End = chunk.next
				return false, nil
			}
			if of != txn.AnchoredLock {
				records++
			}
			if of != txn.AnchoredRecord {
				return true, nil
			}
			record, err := txn.DecodeRecord(value)
			if err != nil {
				return false, err
			}
			if record.MayHaveLocks() && record.Over(threshold) &&
				(!record.CommitWait || g.Replica.Passed(record.Timestamp)) {
				c, err := committed(d, key, id, &record)
				if err != nil {
					return false, err
				}
				participants += len(record.Participants)
				old = append(old, c)
			}
			return true, nil
		})
	g.Replica.Exit()
	if err != nil || len(old) == 0 || g.Resolver == nil {
		return chunk, err
	}
	chunk.settled = make(map[txn.ID]struct{}, len(old))
	for i, settled := range g.Resolver.Resolve(ctx, old) {
		if settled {
			chunk.settled[old[i].ID] = struct{}{}
		}
	}
	g.Metrics.recordsUnsettled.Add(float64(len(old) - len(chunk.settled)))
	return chunk, ctx.Err()
}

// eachAnchored calls visit for what is anchored in a span of state keys, until visit returns false.
// n counts the calls from 0; value is good until visit returns, and nil for locks.
func (g *Collector) eachAnchored(span keys.Span,
	visit func(n int, key []byte, of txn.Anchored, id txn.ID, value []byte) (bool, error)) error {
	n := -1
	return storage.Each(g.State, span, func(i *pebble.Iterator) (more bool, err error) {
		_, suffix, err := keys.DecodeAnchorKey(i.Key())
		if err != nil {
			return false, fmt.Errorf("%w: %w", storage.ErrRecord, err)
		}
		of, id := txn.Classify(suffix)
		var value []byte
		if of != txn.AnchoredLock {
			if value, err = i.ValueAndErr(); err != nil {
				return false, err
			}
		}
		n++
		if more, err = visit(n, i.Key(), of, id, value); err != nil {
			err = fmt.Errorf("record %s: %w", keys.PrettyState(i.Key()), err)
		}
		return more, err
	})
}

// foundRecords is what a look at the anchored records found.
type foundRecords struct {
	// old are the keys of those that may go.
	old [][]byte
	// ended counts the transactions among them, transactions says that records of others stay.
	ended        int
	transactions bool
}

// oldRecords finds the records of a chunk that may go at a threshold.
func (g *Collector) oldRecords(chunk recordChunk, threshold hlc.Timestamp) (found foundRecords,
	err error) {
	err = g.eachAnchored(chunk.span,
		func(_ int, key []byte, of txn.Anchored, id txn.ID, value []byte) (bool, error) {
			var old bool
			var err error
			switch of {
			case txn.AnchoredLock:
				return true, nil // it goes when its transaction is over
			case txn.AnchoredRecord:
				_, settled := chunk.settled[id]
				old, err = oldTransaction(value, threshold, settled)
				if old {
					found.ended++
				} else {
					found.transactions = true
				}
			default:
				old, err = oldDeletedRange(value, threshold)
			}
			if old {
				found.old = append(found.old, bytes.Clone(key))
			}
			return true, err
		})
	return found, err
}

// oldTransaction: what is decided goes when the threshold has come to that, and no lock is left
// that needs it; what is pending when nothing was heard of it since. Its transaction began below
// the threshold then, so the record is not made anew.
func oldTransaction(value []byte, threshold hlc.Timestamp, settled bool) (bool, error) {
	record, err := txn.DecodeRecord(value)
	if err != nil {
		return false, err
	}
	if record.Decided() {
		return record.Collectible(threshold, settled), nil
	}
	return record.Heard < threshold.Wall && record.Started.Less(threshold), nil
}

// oldDeletedRange says that the record of a DeleteRange is not needed any more.
func oldDeletedRange(value []byte, threshold hlc.Timestamp) (bool, error) {
	at, err := command.DeletedRangeAt(value)
	return at.LessEq(threshold), err
}

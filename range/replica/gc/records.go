package gc

import (
	"bytes"
	"context"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/txn"
)

// A record is collected when no request can need it any more. For a COMMITTED record age alone does
// not prove that: while any lock of the transaction is left, a request that meets the lock must
// learn that it is a write. The client resolves its locks after the commit, and so does a server
// that meets them. But a participant may have been without a quorum, or keep old versions for
// longer than this partition does. So before such a record is removed, its participants are told
// the outcome once more, and have to answer. That is cheap: one request to a partition covers a
// thousand transactions, and a partition with nothing to resolve proposes nothing. The answers are
// not stored: either all arrive in a turn, and the record is removed in it, or the next turn asks
// again.

// collectRecords removes the records of DeleteRange whose retries would be refused, and those of
// transactions about which no request can ask.
func (g *Collector) collectRecords(ctx context.Context) error {
	var began uint64 // the value of recordsSet at the first look
	stay := false    // records of transactions were found that stay
	for first, from := true, []byte(nil); first || from != nil; first = false {
		chunk, err := g.resolveOld(ctx, from)
		if err != nil {
			return err
		}
		from = chunk.next
		collected := 0 // belongs to the evaluation until that has ended
		remove := func(e Evaluation) (bool, error) {
			var found foundRecords
			var err error
			if e.Descriptor().GetGeneration() != chunk.generation {
				stay = true // the partition no longer has all of its span
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

// recordChunk is a part of the anchored records, with what is known of their transactions.
type recordChunk struct {
	// span is in state keys; next is the start of the next chunk, nil if there is none.
	span keys.Span
	next []byte
	// generation is that of the partition's span.
	generation uint64
	// settled are the state keys of the records of committed transactions that have no lock left
	// anywhere. An id alone does not name a record: a client chooses ids, and two records at different
	// anchors may have the same one.
	settled map[string]struct{}
}

// resolveOld reads the records of one chunk, from a state key on, and has the locks of those
// committed transactions resolved whose time has come. It runs concurrently with everything else: a
// record that was decided long ago does not change.
func (g *Collector) resolveOld(ctx context.Context, from []byte) (recordChunk, error) {
	d := g.Replica.Descriptor()
	chunk := recordChunk{span: keys.AnchorSpan(keys.PartitionSpan(d)), generation: d.GetGeneration()}
	if from != nil {
		chunk.span.Start = from
	}
	if storage.CompareKeys(chunk.span.Start, chunk.span.End) >= 0 {
		return chunk, nil // the rest has split off
	}
	threshold := g.Replica.Threshold()
	var old []txn.Committed
	var names []string // the state keys of old
	records, participants := 0, 0
	if !g.Replica.Enter() {
		return chunk, errClosed
	}
	err := eachAnchored(g.State, chunk.span,
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
				old, names = append(old, c), append(names, string(key))
			}
			return true, nil
		})
	g.Replica.Exit()
	if err != nil || len(old) == 0 || g.Resolver == nil {
		return chunk, err
	}
	chunk.settled = make(map[string]struct{}, len(old))
	for i, settled := range g.Resolver.Resolve(ctx, old) {
		if settled {
			chunk.settled[names[i]] = struct{}{}
		}
	}
	g.Metrics.recordsUnsettled.Add(float64(len(old) - len(chunk.settled)))
	return chunk, ctx.Err()
}

// foundRecords is the result of a look at the anchored records.
type foundRecords struct {
	// old are the keys of the records that may be removed.
	old [][]byte
	// ended counts the transactions among them; transactions is set if records of others stay.
	ended        int
	transactions bool
}

// oldRecords finds the records of a chunk that may be removed at a threshold.
func (g *Collector) oldRecords(chunk recordChunk, threshold hlc.Timestamp) (found foundRecords,
	err error) {
	err = eachAnchored(g.State, chunk.span,
		func(_ int, key []byte, of txn.Anchored, _ txn.ID, value []byte) (bool, error) {
			var old bool
			var err error
			switch of {
			case txn.AnchoredLock:
				return true, nil // the lock goes when its transaction is over
			case txn.AnchoredRecord:
				_, settled := chunk.settled[string(key)]
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

// oldTransaction reports whether a transaction's record may be removed: a decided one when the
// threshold has passed the decision and no lock is left that needs it; a pending one when nothing
// was heard of it since the threshold. Its transaction began below the threshold then, so the
// record is not made anew.
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

// oldDeletedRange reports that the record of a DeleteRange is no longer needed.
func oldDeletedRange(value []byte, threshold hlc.Timestamp) (bool, error) {
	at, err := command.DeletedRangeAt(value)
	return at.LessEq(threshold), err
}

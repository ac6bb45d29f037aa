package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/txn"
)

// A replica is removed in steps, and a crash may come between any two of them:
//
//   0. its group stops; if its partition was dropped, its knowledge of commits is sent to the
//      partitions of other keyspaces that need it (gc.Collector.ResolveRemote);
//   1. a mark is put into the log database, synced: from here on the replica is never opened again;
//   2. its data in the state database is deleted, durably;
//   3. its raft log is deleted, and its identity becomes a tombstone, synced;
//   4. the mark is deleted.
//
// A crash before the mark leaves a replica that is opened again, and removed again. Without the
// mark, a crash between 2 and 3 would leave a log without its state, which looks like lost data. At
// start, marked replicas continue at step 2; all steps can be repeated.

// MarkRemoval writes marks, with one sync.
func (n *Lifecycle) MarkRemoval(ids []raftlog.Identity) error {
	b := n.Log.NewBatch()
	defer b.Close()
	for _, id := range ids {
		key := table.Key(table.KindRemoval, uint64(id.Group))
		if err := b.Set(key, table.Seal(key, nil), nil); err != nil {
			return err
		}
	}
	return n.Log.Commit(b, true)
}

// unmarkRemoval deletes marks. It is not synced: a mark that returns after a crash meets a
// tombstone.
func (n *Lifecycle) unmarkRemoval(ids []raftlog.Identity) error {
	b := n.Log.NewBatch()
	defer b.Close()
	for _, id := range ids {
		if err := b.Delete(table.Key(table.KindRemoval, uint64(id.Group)), nil); err != nil {
			return err
		}
	}
	return n.Log.Commit(b, false)
}

// ReadRemovals returns the partitions whose replicas are being removed, from the log database.
func ReadRemovals(log *engine.Log) (map[keys.PartitionID]bool, error) {
	it, err := log.NewIter(&pebble.IterOptions{LowerBound: []byte{table.Prefix,
		table.KindRemoval}, UpperBound: []byte{table.Prefix, table.KindRemoval + 1}})
	if err != nil {
		return nil, fmt.Errorf("looking for unfinished removals: %w", err)
	}
	defer it.Close()
	marked := make(map[keys.PartitionID]bool)
	for ok := it.First(); ok; ok = it.Next() {
		key := it.Key()
		if len(key) != 10 {
			return nil, fmt.Errorf("looking for unfinished removals: key %q: %w", key, table.ErrCache)
		}
		value, err := it.ValueAndErr()
		if err == nil {
			_, err = table.Unseal(key, value)
		}
		if err != nil {
			return nil, fmt.Errorf("looking for unfinished removals: %w", err)
		}
		id := uint64(0)
		for _, b := range key[2:] {
			id = id<<8 | uint64(b)
		}
		marked[keys.PartitionID(id)] = true
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("looking for unfinished removals: %w", err)
	}
	return marked, nil
}

// remove removes replicas that are open here. It returns those that are postponed because they have
// more to tell, and are to be removed a little later.
func (n *Lifecycle) remove(ctx context.Context,
	gone []*hosted.Replica) (postponed []*hosted.Replica,
	err error) {
	n.Retire(gone)
	gone, postponed = n.settle(ctx, gone)
	return postponed, n.destroy(ctx, gone)
}

// Retire closes replicas that are to be removed. From here on they answer nothing, and cast no
// vote.
func (n *Lifecycle) Retire(gone []*hosted.Replica) {
	for _, h := range gone {
		if h.Removed.Swap(true) {
			continue // the last attempt failed at a later step
		}
		n.Host.Remove(h.Group)
		h.Replica.Close()
		n.rooms.Closed(h)
		h.Removal.SettleUntil = time.Now().Add(txn.RemovalGrace)
	}
}

// settle sends what closed replicas know of commits, and returns those that may be removed, and
// those for which that has to be tried again.
func (n *Lifecycle) settle(ctx context.Context, gone []*hosted.Replica) (settled,
	again []*hosted.Replica) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for _, h := range gone {
		if h.Removal.Moved.Load() {
			settled = append(settled, h)
			continue
		}
		left, err := h.Replica.GC().ResolveRemote(ctx)
		switch {
		case err == nil && left == 0:
			settled = append(settled, h)
		case time.Now().Before(h.Removal.SettleUntil):
			again = append(again, h)
		default:
			n.Logger.Warn("a partition is removed with the outcome of transactions, for others that "+
				"they wrote to cannot be told; there they are taken for aborted",
				"partition", h.ID, "transactions", left, "error", err)
			settled = append(settled, h)
		}
	}
	return settled, again
}

// settleTimeout bounds one try of settle for all replicas of a batch: new replicas wait for it.
const settleTimeout = 10 * time.Second

// destroy removes closed replicas from the disk.
func (n *Lifecycle) destroy(ctx context.Context, gone []*hosted.Replica) error {
	if len(gone) == 0 {
		return nil
	}
	// INVARIANT: the removal of replicas that they have consumed is durable before they are
	// removed.
	n.Merged.closeEnded()
	if err := n.Merged.removeLogs(); err != nil {
		return err
	}
	ids := make([]raftlog.Identity, len(gone))
	for i, h := range gone {
		ids[i] = h.Identity
	}
	// INVARIANT: children are durable before the parent's log is removed: they could not be made
	// again. And at the next start the removal must be of the span that the parent has now.
	for _, h := range gone {
		flush := h.Replica.FlushSplits
		if h.Removal.TakenOver.Load() {
			// INVARIANT: the merge is durable before the log of the consumed replica is removed.
			flush = n.State.Flush
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if err := n.MarkRemoval(ids); err != nil {
		return err
	}
	states := make([]storage.Gone, len(gone))
	for i, h := range gone {
		var err error
		if states[i], err = h.Replica.Gone(); err != nil {
			return err
		}
	}
	if err := storage.Destroy(ctx, n.State, states...); err != nil {
		return err
	}
	if err := n.Host.Log().Remove(ids...); err != nil {
		return err
	}
	if err := n.unmarkRemoval(ids); err != nil {
		return err
	}
	n.Replicas.Change(nil, gone)
	for _, h := range gone {
		n.Shared.Spans.Release(h.ID)
		n.Children.forget(h)
		if h.Removal.Moved.Load() {
			n.due.add(h.ID) // another replica of it may be listed here
		}
	}
	n.due.spansChanged()
	n.removed.Add(float64(len(gone)))
	if n.DiskFull() {
		// The entries lie in files of the log until those are compacted, and nothing else may be
		// written for a long time.
		if err := n.Log.Reclaim(); err != nil {
			return err
		}
	}
	for _, h := range gone {
		n.rooms.Removed(h)
	}
	return nil
}

// removeBroken removes replicas that do not open. Such a replica cannot tell what it knows of
// commits; the partition's other replicas do.
func (n *Lifecycle) removeBroken(ctx context.Context, gone []brokenReplica) error {
	if len(gone) == 0 {
		return nil
	}
	n.Merged.closeEnded()
	if err := n.Merged.removeLogs(); err != nil {
		return err
	}
	ids := make([]raftlog.Identity, len(gone))
	for i, b := range gone {
		ids[i] = b.identity
	}
	// INVARIANT: as in destroy.
	if err := n.State.Flush(); err != nil {
		return err
	}
	if err := n.MarkRemoval(ids); err != nil {
		return err
	}
	if err := n.erase(ctx, ids); err != nil {
		return err
	}
	defer n.due.spansChanged()
	for _, id := range ids {
		n.Shared.Spans.Release(id.Group)
		n.broken.Delete(id.Group)
		n.brokenReplicas.Dec()
		n.Logger.Info("a replica that did not open was removed: its partition is in no keyspace any "+
			"more, or has moved", "partition", id.Group, "replica", id.Replica)
		n.due.add(id.Group) // another replica of it may be listed here
	}
	n.removed.Add(float64(len(ids)))
	return nil
}

// resumeRemoval removes replicas that were found marked at start.
func (n *Lifecycle) resumeRemoval(ids []raftlog.Identity) error {
	if len(ids) == 0 {
		return nil
	}
	n.Logger.Info("finishing the removal of replicas that the last process began", "replicas",
		len(ids))
	return n.erase(context.Background(), ids)
}

// erase continues the removal of replicas that are marked, and not open.
func (n *Lifecycle) erase(ctx context.Context, ids []raftlog.Identity) error {
	var left []raftlog.Identity
	var states []storage.Gone
	for _, id := range ids {
		if id.Removed {
			continue // only the mark is left
		}
		left = append(left, id)
		// INVARIANT: only the present span of the replica is removed. The span with which it was
		// created may be another partition's by now.
		gone := storage.Gone{ID: id.Group}
		span, err := storage.RecordedSpan(n.State, id.Group)
		if err != nil {
			if span, err = n.loneSpan(id); err != nil {
				return err
			}
		}
		gone.Span = span
		states = append(states, gone)
	}
	if err := storage.Destroy(ctx, n.State, states...); err != nil {
		return err
	}
	if err := n.Host.Log().Remove(left...); err != nil {
		return err
	}
	return n.unmarkRemoval(ids)
}

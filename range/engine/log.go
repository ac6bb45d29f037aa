package engine

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Log is the engine of the Raft logs: a synced commit survives a crash. Keys sort bytewise. It is
// safe for concurrent use.
type Log struct {
	*store

	// order is full while a batch takes its number and its place in the WAL, and while a flush
	// begins another WAL: Pebble then syncs the former WAL under a lock that commits need. It is
	// not full while a batch is synced. Capacity 1. It is a channel and not a mutex because the
	// holder may wait for the disk, and in tests virtual time advances only while goroutines wait
	// for channels.
	order chan struct{}
	// sequence is the number of the last batch. Guarded by order.
	sequence uint64
	// synced is the highest number known to be synced.
	synced atomic.Uint64
}

// LogBatch is a set of changes to a Log, made in one commit. It is for one goroutine at a time.
// Close it after use.
type LogBatch struct {
	*pebble.Batch
	sequence uint64
}

// Reset makes the batch empty, for use again.
func (b *LogBatch) Reset() {
	b.Batch.Reset()
	addMark(b.Batch)
}

// Empty reports whether the batch has no changes.
func (b *LogBatch) Empty() bool { return b.Count() == 0 }

// OpenLog opens or creates a log.
func OpenLog(o Options) (*Log, error) {
	s, err := openStore(o, kindLog, logOptions)
	if err != nil {
		return nil, err
	}
	return &Log{store: s, order: make(chan struct{}, 1)}, nil
}

// NewBatch returns an empty batch.
func (l *Log) NewBatch() *LogBatch {
	b := &LogBatch{Batch: l.db.NewBatch()}
	addMark(b.Batch)
	return b
}

// Commit makes the changes of the batch, all or none. With sync it returns when they are durable;
// without, they become durable with the next synced commit. Commits become durable in the order in
// which they were made. On an error the outcome is unknown, and the log has failed.
func (l *Log) Commit(b *LogBatch, sync bool) error {
	if !sync {
		err := l.enqueue(b, func() error { return l.db.Apply(b.Batch, pebble.NoSync) })
		if err != nil {
			return err
		}
		return l.g.err()
	}
	// Batches take their places in the WAL in order; commits that run at the same time then share a
	// sync.
	err := l.enqueue(b, func() error { return l.db.ApplyNoSyncWait(b.Batch, pebble.Sync) })
	if err != nil {
		return err
	}
	return l.awaitSync(b)
}

// Flush writes all earlier commits to tables, and returns when the tables are durable.
func (l *Log) Flush() error { return l.store.flushInTurn(l.order) }

// AsyncFlush starts a Flush; Options.FlushEnd tells when it is done.
func (l *Log) AsyncFlush() error {
	_, err := l.store.startFlush(l.order)
	return err
}

// Reclaim is called after spans were deleted. If the disk has little space, it frees the space of
// the deleted data without waiting for other writes: it starts a flush, and lets compactions begin
// with less space than otherwise.
func (l *Log) Reclaim() error {
	l.g.reclaim()
	return l.AsyncFlush()
}

// GiveBack is State.GiveBack, for a span that is not written to any more.
func (l *Log) GiveBack(ctx context.Context, span keys.Span) error {
	if err := l.Flush(); err != nil { // in turn with the commits, unlike a flush that Pebble begins
		return err
	}
	return l.giveBack(ctx, span)
}

// enqueue gives the batch its number and its place in the WAL.
func (l *Log) enqueue(b *LogBatch, apply func() error) error {
	if err := l.check(); err != nil {
		return err
	}
	if err := l.admit(b.Len()); err != nil {
		return err
	}
	l.order <- struct{}{}
	l.sequence++
	b.sequence = l.sequence
	walMark{sequence: b.sequence, synced: l.synced.Load()}.write(b.Repr())
	err := apply()
	<-l.order
	if err != nil {
		return l.explain(fmt.Errorf("commit to the log in %s: %w", l.dir, err))
	}
	return nil
}

// awaitSync waits until an enqueued batch is durable.
func (l *Log) awaitSync(b *LogBatch) error {
	if err := b.SyncWait(); err != nil {
		return fmt.Errorf("sync the log in %s: %w", l.dir, err)
	}
	// INVARIANT: the failure is checked after Pebble is done; see the package comment.
	if err := l.g.err(); err != nil {
		return err
	}
	for {
		synced := l.synced.Load()
		if synced >= b.sequence || l.synced.CompareAndSwap(synced, b.sequence) {
			return nil
		}
	}
}

// Close ends the log. No other call may run meanwhile or come later. It may be called again.
func (l *Log) Close() error {
	return l.close(func() {
		if l.Full() {
			return
		}
		// An empty batch, whose mark says that all batches before it were synced.
		b := l.NewBatch()
		defer b.Close()
		if err := l.Commit(b, true); err != nil {
			l.logger.Warn("last commit before close", "error", err)
			return
		}
		if err := l.g.names.sealAt(l.sequence); err != nil {
			l.logger.Warn("writing before close how far the log reaches", "error", err)
		}
	})
}

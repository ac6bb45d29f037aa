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

	// order is full while a batch takes its number and its place in the WAL, and while a flush begins
	// another WAL: Pebble syncs the one before under a lock that commits need. It is not full while a
	// batch is synced. Capacity 1. A channel and not a mutex, as the holder may wait for the disk:
	// virtual time goes on while goroutines wait for a channel.
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
// without, they become so with the next synced commit. Commits become durable in the order in which
// they were made. On an error the outcome is unknown, and the log has failed.
func (l *Log) Commit(b *LogBatch, sync bool) error {
	if !sync {
		err := l.enqueue(b, func() error { return l.db.Apply(b.Batch, pebble.NoSync) })
		if err != nil {
			return err
		}
		return l.g.err()
	}
	// The place in the WAL is taken in order, and then commits that run at the same time share a
	// sync.
	err := l.enqueue(b, func() error { return l.db.ApplyNoSyncWait(b.Batch, pebble.Sync) })
	if err != nil {
		return err
	}
	return l.awaitSync(b)
}

// Flush makes everything that was committed before durable in tables, and waits for that.
func (l *Log) Flush() error { return l.store.flushInTurn(l.order) }

// AsyncFlush starts a Flush; Options.FlushEnd tells when it is done.
func (l *Log) AsyncFlush() error {
	_, err := l.store.startFlush(l.order)
	return err
}

// Reclaim is called after deletions of spans: what they deleted gives its room back if the disk has
// little, without waiting for other writes. It starts a flush, and compactions may begin with less
// room than otherwise.
func (l *Log) Reclaim() error {
	l.g.reclaim()
	return l.AsyncFlush()
}

// GiveBack is State.GiveBack, for a span in which nothing is written any more.
func (l *Log) GiveBack(ctx context.Context, span keys.Span) error {
	if err := l.Flush(); err != nil { // in turn with the commits, which a flush by Pebble is not
		return err
	}
	return l.giveBack(ctx, span)
}

// enqueue gives the batch its number and its place.
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

// awaitSync waits until a batch that has its place is durable.
func (l *Log) awaitSync(b *LogBatch) error {
	if err := b.SyncWait(); err != nil {
		return fmt.Errorf("sync the log in %s: %w", l.dir, err)
	}
	// INVARIANT: looked at after Pebble is done; see the package comment.
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

// Close ends the log. Nothing else may run or come after. It may be called again.
func (l *Log) Close() error {
	return l.close(func() {
		if l.Full() {
			return
		}
		// An empty batch: its mark vouches for all before it.
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

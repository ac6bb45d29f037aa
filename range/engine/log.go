package engine

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Log is the engine of the Raft logs: a synced commit survives a crash. Keys sort bytewise. It is safe for concurrent use.
type Log struct {
	*store
}

// LogBatch is a set of changes to a Log, made in one commit. It is for one goroutine at a time. Close it after use.
type LogBatch struct {
	*pebble.Batch
}

// OpenLog opens or creates a log.
func OpenLog(o Options) (*Log, error) {
	s, err := openStore(o, kindLog, logOptions)
	if err != nil {
		return nil, err
	}
	return &Log{s}, nil
}

// NewBatch returns an empty batch.
func (l *Log) NewBatch() *LogBatch { return &LogBatch{l.db.NewBatch()} }

// Commit makes the changes of the batch, all or none. With sync it returns when they are durable; without, they become so
// with the next synced commit. On an error the outcome is unknown, and the log has failed.
func (l *Log) Commit(b *LogBatch, sync bool) error {
	if err := l.g.err(); err != nil {
		return err
	}
	o := pebble.NoSync
	if sync {
		o = pebble.Sync
	}
	if err := l.db.Apply(b.Batch, o); err != nil {
		return fmt.Errorf("commit to the log in %s: %w", l.dir, err)
	}
	// INVARIANT: looked at after Pebble is done; see the package comment.
	return l.g.err()
}

// CommitAsync is a synced Commit that does not wait: the changes show at once, and are durable when SyncWait has returned
// nil. Commits become durable in the order in which they were made.
func (l *Log) CommitAsync(b *LogBatch) error {
	if err := l.g.err(); err != nil {
		return err
	}
	if err := l.db.ApplyNoSyncWait(b.Batch, pebble.Sync); err != nil {
		return fmt.Errorf("commit to the log in %s: %w", l.dir, err)
	}
	return nil
}

// SyncWait waits for a batch that was given to CommitAsync. It must be called, once, before the batch is closed, even if the
// outcome does not matter any more.
func (l *Log) SyncWait(b *LogBatch) error {
	if err := b.SyncWait(); err != nil {
		return fmt.Errorf("sync the log in %s: %w", l.dir, err)
	}
	// INVARIANT: as in Commit.
	return l.g.err()
}

// Close ends the log. Nothing else may run or come after. It may be called again.
func (l *Log) Close() error { return l.close(nil) }

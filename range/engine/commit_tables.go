package engine

import (
	"context"
	"fmt"
)

// CommitTables adds tables, which NewTableWriter made and which must not overlap, in one step, as
// Commit makes the changes of a batch: all of it shows when it returns, and survives a crash as a
// whole once it was flushed. size is about how many bytes they hold. It takes the files, also on an
// error, after which the state has failed.
//
// What is in the tables is newer than what was committed before to the same keys. A crash that
// keeps the tables keeps what was committed before to any of their keys; what was committed to
// others may be lost, although it came before. So a table with a key that each commit of its owner
// sets makes them follow on those, as if they were a batch.
//
// INVARIANT: that is so because Pebble puts tables that overlap a memtable into the queue behind
// it, or flushes it before. Nothing has to be known of which it does.
func (s *State) CommitTables(ctx context.Context, paths []string, size int) error {
	defer s.tables.remove(paths)
	if err := s.check(); err != nil {
		return err
	}
	if err := s.admit(size); err != nil {
		return err
	}
	s.ingestion.Lock()
	err := s.ingestTables(ctx, paths)
	s.ingestion.Unlock()
	if err != nil {
		return s.explain(fmt.Errorf("commit %d tables to the state in %s: %w", len(paths), s.dir, err))
	}
	return s.g.err()
}

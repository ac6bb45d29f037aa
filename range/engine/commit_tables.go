package engine

import (
	"context"
	"fmt"
)

// CommitTables adds tables, which NewTableWriter made and which must not overlap, in one atomic
// step, like the changes of a batch in Commit: all of it is visible when it returns, and after a
// flush all of it survives a crash. size estimates how many bytes the tables hold. CommitTables
// takes the files, also on an error, after which the state has failed.
//
// The tables are newer than earlier commits to the same keys. A crash that keeps the tables keeps
// earlier commits to any of the tables' keys; it may lose commits to other keys, although they came
// earlier. So if each commit of an owner writes a certain key, a table with that key is durable
// only together with all of the owner's earlier commits, as if the table were a batch.
//
// INVARIANT: this holds because Pebble queues tables that overlap a memtable behind that memtable,
// or flushes the memtable first. It does not matter which of the two it does.
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

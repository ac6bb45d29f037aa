package store

import (
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// recoveredRevisions is by how much the revision is raised when the core goes on from one member:
// the lost ones may have had later revisions, and a watcher that has seen one of these has to begin
// anew.
const recoveredRevisions = 1_000_000

// Recover replaces the members, does operations, raises the revision, and forgets the history,
// durably and in one step. It is for tools that work on the state of a member that does not run,
// and that has applied all of its log. A state that has applied nothing counts from then on as one
// that has applied the first entry, at term 1: what it is now comes from no entry, so no member can
// begin with the first.
func (s *Store) Recover(next *storepb.Members, ops ...*storepb.Op) error {
	if err := command.ValidateMembers(next); err != nil {
		return err
	}
	batch := s.config.State.NewIndexedBatch()
	defer batch.Close()
	a, err := s.newApplication(batch)
	if err != nil {
		return err
	}
	defer a.close()
	a.meta.Revision += recoveredRevisions
	defer func() {
		s.blocks.Reset(s.Revision())
		s.newest.Reset()
	}()
	result := &storepb.Result{}
	if err := a.txn(&storepb.Txn{Success: ops}, result); err != nil {
		return err
	}
	if err := command.ErrorOf(result); err != nil {
		return fmt.Errorf("changing records: %w", err)
	}
	if err := a.compact(&storepb.Compact{Revision: a.meta.Revision}, result); err != nil {
		return err
	}
	if err := command.ErrorOf(result); err != nil {
		return fmt.Errorf("forgetting the history: %w", err)
	}
	if err := a.set(s.layout.Members, next); err != nil {
		return err
	}
	index, term := s.machine.index, s.machine.term
	if index == 0 {
		index, term = 1, 1
		if err := batch.Set(s.layout.Applied, tables.EncodeApplied(index, term), nil); err != nil {
			return err
		}
	}
	if err := errors.Join(a.saveMeta(), a.close()); err != nil {
		return err
	}
	if err := s.config.State.Commit(batch); err != nil {
		return err
	}
	s.machine.index, s.machine.term, s.machine.meta = index, term, a.meta
	s.members.replace(next)
	s.revision.Store(a.meta.Revision)
	s.compacted.Store(a.meta.Compacted)
	return s.config.State.Flush()
}

package store

import (
	"context"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// ImportState says how far the latest import is.
type ImportState struct {
	// ID is 0 if there was no import, or the latest was given up.
	ID uint64
	// Done is set if the import has ended.
	Done bool
	// Source names the source of the import, from its first step.
	Source []byte
	// Step is the last that was done, Revision that of the state that is imported.
	Step, Revision uint64
	// Leases and Versions are how many have come, and LastLease and LastKey the last of them.
	Leases, Versions uint64
	LastLease        int64
	LastKey          []byte
}

// Import is a command that does one step of an import; see storepb.Import. Execute returns when it
// is done. ErrNotEmpty says that there are keys or leases already, ErrImporting that another import
// is under way.
func Import(step *storepb.Import) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Import{Import: step}}
}

// ImportState returns the progress of the latest import, at the time of the call. Any member can
// tell.
func (s *Store) ImportState(ctx context.Context) (ImportState, error) {
	var state ImportState
	if err := s.Confirm(ctx); err != nil {
		return state, err
	}
	err := s.ReadState(func(r *tables.Reader) error {
		record := r.Meta.Import
		if record == nil {
			return nil
		}
		state = ImportState{ID: record.Id, Done: record.Done, Source: record.Source,
			Step: record.Step, Revision: record.Revision, Leases: record.Leases,
			Versions: record.Versions, LastLease: record.LastLease, LastKey: record.LastKey}
		return nil
	})
	return state, err
}

// Importing is ErrImporting while an import is under way, as far as this member knows.
func (s *Store) Importing() error {
	if s.importing.Load() {
		return command.ErrImporting
	}
	return nil
}

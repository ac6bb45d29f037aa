package store

import (
	"context"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// ImportState is the progress of the latest import.
type ImportState struct {
	// ID is 0 if there was no import, or the latest was abandoned.
	ID uint64
	// Done is set if the import is complete.
	Done bool
	// Source names the source of the import, from its first step.
	Source []byte
	// Step is the last completed step, Revision the revision of the imported state.
	Step, Revision uint64
	// Leases and Versions are the numbers imported so far; LastLease and LastKey are the last of
	// each.
	Leases, Versions uint64
	LastLease        int64
	LastKey          []byte
}

// Import is a command for one step of an import; see storepb.Import. Execute returns when the step
// is applied. It returns ErrNotEmpty if the store has keys or leases, and ErrImporting if another
// import is running.
func Import(step *storepb.Import) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Import{Import: step}}
}

// ImportState returns the progress of the latest import, as of the call, on any member.
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

// Importing returns ErrImporting if this member knows of a running import, and nil otherwise.
func (s *Store) Importing() error {
	if s.importing.Load() {
		return command.ErrImporting
	}
	return nil
}

package store

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// Export is one state of a member's store, to be converted to another format. One goroutine uses
// it. It keeps files from being freed, and the store from being closed, until Close.
type Export struct {
	// Revision is the store's revision, Compacted the lowest readable revision; 0 if it was never
	// compacted.
	Revision, Compacted uint64
	// Index and Term are those of the last applied entry of the log.
	Index, Term uint64

	store  *Store
	reader *tables.Reader
}

// ExportedLease is a lease in the state. Left is the remaining time from a checkpoint, 0 for a full
// term.
type ExportedLease struct {
	ID                    int64
	TTLMillis, LeftMillis uint64
}

// ExportedAuth are users and roles, with password hashes. It lacks the key that signs tokens:
// tokens are valid only for the store that issued them.
type ExportedAuth struct {
	// Enabled says whether authentication is enabled. Revision counts the changes of users and
	// roles, from 1 on.
	Enabled  bool
	Revision uint64
	// Users and Roles are by name. The caller may change them.
	Users map[string]*storepb.UserRecord
	Roles map[string]*storepb.RoleRecord
}

// Change is one version of a key. The caller may change KV. KV.Version is 0 for a deletion, which
// has only the key and the revision.
type Change struct {
	KV *storepb.KeyValue
	// Number counts the changes of one revision. It is unknown (Numbered is false) below Compacted,
	// where only the readable versions are left.
	Number   uint32
	Numbered bool
}

// Export returns this member's newest state.
func (s *Store) Export() (*Export, error) {
	r, err := s.Open()
	if err != nil {
		return nil, err
	}
	if tables.Importing(r.Meta) {
		s.Done(r)
		return nil, command.ErrImporting
	}
	e := &Export{Revision: r.Meta.Revision, Compacted: r.Meta.Compacted, store: s, reader: r}
	if e.Index, e.Term, err = r.Applied(); err != nil {
		e.Close()
		return nil, fmt.Errorf("export of %s: %w", s.config.Name, err)
	}
	return e, nil
}

// Close releases the state.
func (e *Export) Close() { e.store.Done(e.reader) }

// Leases lists the leases, by ascending id as an unsigned number.
func (e *Export) Leases() ([]ExportedLease, error) {
	found, err := e.reader.Leases()
	if err != nil {
		return nil, err
	}
	leases := make([]ExportedLease, len(found))
	for i, l := range found {
		leases[i] = ExportedLease{ID: l.ID, TTLMillis: l.TTLMillis, LeftMillis: l.LeftMillis}
	}
	return leases, nil
}

// Auth returns users and roles.
func (e *Export) Auth() (ExportedAuth, error) {
	record, err := e.reader.AuthRecord()
	if err != nil {
		return ExportedAuth{}, err
	}
	a := ExportedAuth{Enabled: record.GetEnabled(), Revision: max(record.GetRevision(), 1)}
	a.Users, a.Roles, err = e.reader.Accounts()
	return a, err
}

// Changes visits the history in the state: first the versions from below Compacted that are still
// readable, in the order of the keys, then all changes from Compacted on, in their order. It ends
// with the first error of visit, or when ctx ends.
func (e *Export) Changes(ctx context.Context, visit func(Change) error) error {
	e.reader.Interrupted = ctx.Err
	if err := e.survivors(visit); err != nil {
		return err
	}
	return e.changesFrom(ctx, e.Compacted, visit)
}

// ChangesSince visits all changes above a revision, in their order, each with its number. It ends
// with the first error of visit, or when ctx ends. It returns a CompactedError if the state is
// compacted above the next revision, and so lacks some of these changes, as it is after an import;
// and ErrFutureRevision if the store has not reached the revision.
func (e *Export) ChangesSince(
	ctx context.Context, revision uint64, visit func(Change) error,
) error {
	if revision > e.Revision {
		return fmt.Errorf("%w: %d, the store is at %d", command.ErrFutureRevision, revision, e.Revision)
	}
	return e.changesFrom(ctx, revision+1, visit)
}

// changesFrom visits the changes from a revision on.
func (e *Export) changesFrom(
	ctx context.Context, revision uint64, visit func(Change) error,
) error {
	e.reader.Interrupted = ctx.Err
	return e.reader.Events(watch.Position{Revision: revision},
		func(kv *storepb.KeyValue, n uint32, _ *tables.Reader) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			return true, visit(Change{KV: kv, Number: n, Numbered: true})
		})
}

// survivors visits the versions written below Compacted that are visible at Compacted. From
// Compacted on the events are complete.
func (e *Export) survivors(visit func(Change) error) error {
	if e.Compacted == 0 {
		return nil
	}
	return e.reader.Scan(command.Span([]byte{0}, command.RangeEndAll), e.Compacted,
		func(kv *storepb.KeyValue) (bool, error) {
			if kv.ModRevision == e.Compacted {
				return true, nil
			}
			return true, visit(Change{KV: kv})
		})
}

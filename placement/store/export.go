package store

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// Export is one state of a member's store, to be written out in another form. It is for one
// goroutine, and keeps files from being freed: close it soon. The store is not closed before it is.
type Export struct {
	// Revision is the store's, Compacted the lowest that can be read; 0 if it was never compacted.
	Revision, Compacted uint64
	// Index and Term are those of the last entry of the log that is in it.
	Index, Term uint64

	store  *Store
	reader *tables.Reader
}

// ExportedLease is a lease as the state has it. Left is 0 if it has a full term.
type ExportedLease struct {
	ID                    int64
	TTLMillis, LeftMillis uint64
}

// Change is one version of a key, as the state has it. KV is the caller's; its Version is 0 for a
// deletion, of which it has the key and the revision.
type Change struct {
	KV *storepb.KeyValue
	// Number counts the changes of one revision. It is not known (Numbered is false) below
	// Compacted, where only the versions that can still be read are left.
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

// Close lets go of the state.
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

// Changes visits everything that the state has of the history: first the versions from below
// Compacted, in the order of the keys, then all changes from there on, in their order. It ends with
// the first error of visit, and with ctx.
func (e *Export) Changes(ctx context.Context, visit func(Change) error) error {
	e.reader.Interrupted = ctx.Err
	if err := e.survivors(visit); err != nil {
		return err
	}
	return e.reader.Events(watch.Position{Revision: e.Compacted},
		func(kv *storepb.KeyValue, n uint32, _ *tables.Reader) (bool, error) {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			return true, visit(Change{KV: kv, Number: n, Numbered: true})
		})
}

// survivors are the versions that can be seen at Compacted and were written below. At Compacted and
// above, the events are complete.
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

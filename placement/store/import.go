package store

import (
	"bytes"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/imports"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// An import brings in the state that another store had at a revision: a stream of commands, each of
// which writes leases and versions as they were there. Step 1 begins it, in a store without keys
// and leases, and the step that says so ends it. In between, the meta record says how far it is,
// and Apply refuses all other commands that read or change keys and leases, so that no client
// sees a part.
//
// Package imports says which step can come next. One is applied as a whole or not at all, and one
// that was applied is applied no more.
//
// INVARIANT: the end of an import leaves what a compaction at its revision would have left: of each
// key the newest version, and the events of that revision alone.

const (
	// MaxImported is how many leases and versions one step of an import may have.
	MaxImported = 10_000
	// maxImportHistory is how many versions of deleted keys an import may find in the store.
	maxImportHistory = 100_000
	// maxImportSource bounds the name of what an import reads.
	maxImportSource = 256
)

// importing says whether an import is under way.
func importing(meta *storepb.MetaRecord) bool { return imports.UnderWay(meta.Import) }

// refusesDuringImport says whether a command has to wait for the end of an import.
func refusesDuringImport(c *storepb.Command) bool {
	switch c.Op.(type) {
	case *storepb.Command_Import, *storepb.Command_ChangeMembers, *storepb.Command_SessionOpen,
		*storepb.Command_SessionClose, *storepb.Command_AlarmChange:
		return false
	}
	return true
}

func validateImport(m *storepb.Import) error {
	switch {
	case m.GetId() == 0, m.Step == 0 && !m.Abandon:
		return fmt.Errorf("%w: an import needs an id, and counts its steps from 1 on", ErrInvalid)
	case m.Step == 1 && (m.Revision == 0 || int64(m.Revision) < 0):
		return fmt.Errorf("%w: an import of revision %d", ErrInvalid, m.Revision)
	case len(m.Source) > maxImportSource:
		return fmt.Errorf("%w: the name of what is imported has more than %d bytes", ErrTooLarge,
			maxImportSource)
	case m.Enable != nil && (!m.End || len(m.Enable.Key) < authority.KeyBytes):
		return fmt.Errorf("%w: authentication is enabled by the last step of an import, with a key of "+
			"at least %d bytes", ErrInvalid, authority.KeyBytes)
	case len(m.Leases)+len(m.Versions) > MaxImported:
		return fmt.Errorf("%w: more than %d leases and keys in one step of an import", ErrTooLarge,
			MaxImported)
	}
	return nil
}

// importStep applies a step.
func (a *application) importStep(m *storepb.Import, result *storepb.Result) error {
	a.store.newest.Reset() // versions are written beside it, and removed
	if m.GetAbandon() {
		return a.abandonImport(m, result)
	}
	underWay := importing(a.meta)
	record, refused := imports.Next(a.meta.Import, m)
	if refused != nil {
		refuseStep(result, refused)
		return nil
	}
	if record == nil {
		return nil // it was done
	}
	return a.read(func(r *reader) error {
		if !underWay {
			if err := checkEmpty(r, m, result); err != nil || result.Code != storepb.Code_OK {
				return err
			}
		}
		refused, err := imports.Check(importedState{r}, m, record)
		if err != nil {
			return err
		}
		if refused != nil {
			refuseStep(result, refused)
			return nil
		}
		if m.Enable != nil {
			err := a.changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_Enable{Enable: m.Enable}},
				result)
			if err != nil || result.Code != storepb.Code_OK {
				return err
			}
		}
		if !underWay && a.meta.Revision > initialRevision {
			// There was something: no watcher is to take what comes for what comes after it.
			if err := a.clear(tableVersion, tableEvent); err != nil {
				return err
			}
			a.removed(a.meta.Bytes)
			a.meta.Revision++
			a.meta.Compacted, a.meta.CompactionRest = a.meta.Revision, nil
			a.replaced = true
		}
		a.meta.Import, a.metaChanged = record, true
		return a.writeImported(m, record.Revision)
	})
}

// checkEmpty refuses to begin an import that would hide something, or in which revisions went back.
func checkEmpty(r *reader, m *storepb.Import, result *storepb.Result) error {
	if r.seek(r.table(tableLease), r.end(tableLease)) {
		refuse(result, storepb.Code_NOT_EMPTY, "it has leases")
		return nil
	}
	passed, end := 0, r.end(tableVersion)
	for ok := r.seek(r.table(tableVersion), end); ok; passed++ {
		if passed == maxImportHistory {
			refuse(result, storepb.Code_NOT_EMPTY, "it has no keys, but a history of more than %d "+
				"deletions: compact it first", maxImportHistory)
			return nil
		}
		key, revision, err := decodeVersionKey(r.it.Key())
		if err != nil {
			return err
		}
		kv, err := r.decodeParts(key, revision, mereKey)
		if err != nil {
			return err
		}
		if kv != nil {
			refuse(result, storepb.Code_NOT_EMPTY, "it has keys, such as %s", keys.Pretty(key))
			return nil
		}
		ok = r.it.NextPrefix() && bytes.Compare(r.it.Key(), end) < 0
	}
	if err := r.it.Error(); err != nil {
		return err
	}
	if at := r.meta.Revision; at > initialRevision && m.Revision <= at+1 {
		refuse(result, storepb.Code_NOT_EMPTY, "it is at revision %d, and what is to be imported at "+
			"revision %d: revisions would go back", at, m.Revision)
	}
	return nil
}

// importedState is what the checks of a step read.
type importedState struct{ *reader }

// HasEvent implements imports.State.
func (r importedState) HasEvent(revision uint64, number uint32) (bool, error) {
	_, exists, err := r.get(r.event(revision, number))
	return exists, err
}

// HasLease implements imports.State.
func (r importedState) HasLease(id int64) (bool, error) {
	_, exists, err := r.get(r.lease(id))
	return exists, err
}

// refuseStep fills in why a step of an import has no effect.
func refuseStep(result *storepb.Result, r *imports.Refusal) {
	refuse(result, r.Code, "%s", r.Message)
}

// writeImported writes what a step has, which was checked.
func (a *application) writeImported(m *storepb.Import, revision uint64) error {
	for _, l := range m.Leases {
		record := &storepb.LeaseRecord{TtlMillis: l.TtlMillis, LeftMillis: l.LeftMillis}
		if err := a.set(a.store.layout.lease(l.Id), record); err != nil {
			return err
		}
		a.leases = append(a.leases,
			lease.Change{ID: l.Id, TTLMillis: l.TtlMillis, LeftMillis: l.LeftMillis})
	}
	for _, v := range m.Versions {
		record := &storepb.VersionRecord{Tombstone: v.Version == 0, CreateRevision: v.CreateRevision,
			Version: v.Version, Value: v.Value, Lease: v.Lease}
		if err := a.setVersion(a.store.layout.version(v.Key, v.ModRevision), record); err != nil {
			return err
		}
		if v.Lease != 0 {
			a.attached[v.Lease]++
			if err := a.batch.Set(a.store.layout.attached(v.Lease, v.Key), nil, nil); err != nil {
				return err
			}
		}
		if v.ModRevision == revision {
			if err := a.setPair(a.store.layout.event(revision, v.Number), v.Key); err != nil {
				return err
			}
		}
	}
	if m.End {
		a.meta.Revision, a.meta.Compacted, a.replaced = revision, revision, true
		a.meta.CompactionRest = nil
		// Before later commands of the same Apply, whose revisions readers see before publish.
		a.store.blocks.Reset(revision)
	}
	return nil
}

// abandonImport leaves an empty store.
func (a *application) abandonImport(m *storepb.Import, result *storepb.Result) error {
	if !importing(a.meta) || a.meta.Import.Id != m.Id {
		refuse(result, storepb.Code_INVALID, "import %x is not under way", m.Id)
		return nil
	}
	if err := a.clear(tableVersion, tableEvent, tableLease, tableAttached); err != nil {
		return err
	}
	a.removed(a.meta.Bytes)
	a.meta.Import, a.metaChanged, a.forgetLeases = nil, true, true
	a.meta.CompactionRest = nil
	a.leases = nil
	clear(a.attached)
	return nil
}

// clear removes all of some tables.
func (a *application) clear(tables ...byte) error {
	for _, table := range tables {
		start, end := a.store.layout.table(table), a.store.layout.end(table)
		if err := a.batch.DeleteRange(start, end, nil); err != nil {
			return err
		}
	}
	return nil
}

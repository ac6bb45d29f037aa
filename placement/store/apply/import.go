package apply

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/imports"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// An import writes the state that another store had at a revision: a stream of commands, each of
// which writes leases and versions of that state. Step 1 begins the import, in a store without keys
// and leases; the step marked as the last ends it. In between, the meta record holds the progress,
// and Apply refuses all other commands that read or change keys and leases, so that no client sees
// an incomplete state.
//
// Package imports says which step can come next. A step is applied as a whole or not at all, and at
// most once.
//
// INVARIANT: the end of an import leaves the same as a compaction at its revision: the newest
// version of each key, and the events of that revision only.

// maxImportHistory bounds the versions of deleted keys in the store before an import.
const maxImportHistory = 100_000

// refusesDuringImport reports whether a command is refused during an import.
func refusesDuringImport(c *storepb.Command) bool {
	switch c.Op.(type) {
	case *storepb.Command_Import, *storepb.Command_ChangeMembers, *storepb.Command_SessionOpen,
		*storepb.Command_SessionClose, *storepb.Command_AlarmChange:
		return false
	}
	return true
}

// importStep applies a step of an import.
func (a *Application) importStep(m *storepb.Import, result *storepb.Result) error {
	a.machine.newest.Reset() // versions are written and removed without the cache
	if m.GetAbandon() {
		return a.abandonImport(m, result)
	}
	underWay := tables.Importing(a.Meta)
	record, refused := imports.Next(a.Meta.Import, m)
	if refused != nil {
		refuseStep(result, refused)
		return nil
	}
	if record == nil {
		return nil // already done
	}
	return a.read(func(r *tables.Reader) error {
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
		if !underWay && a.Meta.Revision > tables.InitialRevision {
			// The store had a history: no watcher may take the import for later changes.
			if err := a.clear(tables.TableVersion, tables.TableEvent); err != nil {
				return err
			}
			a.removed(a.Meta.Bytes)
			a.Meta.Revision++
			a.Meta.Compacted, a.Meta.CompactionRest = a.Meta.Revision, nil
			a.Replaced = true
		}
		a.Meta.Import, a.metaChanged = record, true
		return a.writeImported(m, record.Revision)
	})
}

// checkEmpty refuses an import that would hide keys or leases, or move the revision back.
func checkEmpty(r *tables.Reader, m *storepb.Import, result *storepb.Result) error {
	if r.Seek(r.Table(tables.TableLease), r.End(tables.TableLease)) {
		command.Refuse(result, storepb.Code_NOT_EMPTY, "it has leases")
		return nil
	}
	passed, end := 0, r.End(tables.TableVersion)
	for ok := r.Seek(r.Table(tables.TableVersion), end); ok; passed++ {
		if passed == maxImportHistory {
			command.Refuse(result, storepb.Code_NOT_EMPTY, "it has no keys, but a history of more than %d "+
				"deletions: compact it first", maxImportHistory)
			return nil
		}
		key, revision, err := tables.DecodeVersionKey(r.Iterator.Key())
		if err != nil {
			return err
		}
		kv, err := r.DecodeParts(key, revision, tables.MereKey)
		if err != nil {
			return err
		}
		if kv != nil {
			command.Refuse(result, storepb.Code_NOT_EMPTY, "it has keys, such as %s", keys.Pretty(key))
			return nil
		}
		ok = r.Iterator.NextPrefix() && bytes.Compare(r.Iterator.Key(), end) < 0
	}
	if err := r.Iterator.Error(); err != nil {
		return err
	}
	if at := r.Meta.Revision; at > tables.InitialRevision && m.Revision <= at+1 {
		command.Refuse(result, storepb.Code_NOT_EMPTY,
			"it is at revision %d, and what is to be imported at "+
				"revision %d: revisions would go back", at, m.Revision)
	}
	return nil
}

// importedState adapts a Reader to imports.State, for the checks of a step.
type importedState struct{ *tables.Reader }

// HasEvent implements imports.State.
func (r importedState) HasEvent(revision uint64, number uint32) (bool, error) {
	_, exists, err := r.Get(r.Event(revision, number))
	return exists, err
}

// HasLease implements imports.State.
func (r importedState) HasLease(id int64) (bool, error) {
	_, exists, err := r.Get(r.Lease(id))
	return exists, err
}

// refuseStep sets the reason why a step of an import has no effect.
func refuseStep(result *storepb.Result, r *imports.Refusal) {
	command.Refuse(result, r.Code, "%s", r.Message)
}

// writeImported writes the content of a checked step.
func (a *Application) writeImported(m *storepb.Import, revision uint64) error {
	for _, l := range m.Leases {
		record := &storepb.LeaseRecord{TtlMillis: l.TtlMillis, LeftMillis: l.LeftMillis}
		if err := a.set(a.machine.layout.Lease(l.Id), record); err != nil {
			return err
		}
		a.Leases = append(a.Leases,
			lease.Change{ID: l.Id, TTLMillis: l.TtlMillis, LeftMillis: l.LeftMillis})
	}
	for _, v := range m.Versions {
		record := &storepb.VersionRecord{Tombstone: v.Version == 0, CreateRevision: v.CreateRevision,
			Version: v.Version, Value: v.Value, Lease: v.Lease}
		if err := a.setVersion(a.machine.layout.Version(v.Key, v.ModRevision), record); err != nil {
			return err
		}
		if v.Lease != 0 {
			a.Attached[v.Lease]++
			if err := a.batch.Set(a.machine.layout.Attached(v.Lease, v.Key), nil, nil); err != nil {
				return err
			}
		}
		if v.ModRevision == revision {
			if err := a.setPair(a.machine.layout.Event(revision, v.Number), v.Key); err != nil {
				return err
			}
		}
	}
	if m.End {
		a.Meta.Revision, a.Meta.Compacted, a.Replaced = revision, revision, true
		a.Meta.CompactionRest = nil
		// Before later commands of the same Apply, whose revisions readers see before publish.
		a.machine.blocks.Reset(revision)
	}
	return nil
}

// abandonImport empties the store.
func (a *Application) abandonImport(m *storepb.Import, result *storepb.Result) error {
	if !tables.Importing(a.Meta) || a.Meta.Import.Id != m.Id {
		command.Refuse(result, storepb.Code_INVALID, "import %x is not under way", m.Id)
		return nil
	}
	if err := a.clear(tables.TableVersion, tables.TableEvent, tables.TableLease,
		tables.TableAttached); err != nil {
		return err
	}
	a.removed(a.Meta.Bytes)
	a.Meta.Import, a.metaChanged, a.ForgetLeases = nil, true, true
	a.Meta.CompactionRest = nil
	a.Leases = nil
	clear(a.Attached)
	return nil
}

// clear removes all pairs of some tables.
func (a *Application) clear(tables ...byte) error {
	for _, table := range tables {
		start, end := a.machine.layout.Table(table), a.machine.layout.End(table)
		if err := a.batch.DeleteRange(start, end, nil); err != nil {
			return err
		}
	}
	return nil
}

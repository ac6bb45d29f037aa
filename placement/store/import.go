package store

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// An import brings in the state that another store had at a revision: a stream of commands, each of
// which writes leases and versions as they were there. Step 1 begins it, in a store without keys
// and leases, and the step that says so ends it. In between, the meta record says how far it is,
// and Apply refuses all other commands that read or change keys and leases, so that nobody sees a
// part.
//
// Versions come in the order of their keys, so that none comes twice and an interrupted import
// knows where to go on. A step is applied as a whole or not at all, and one that was applied is
// applied no more.
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
func importing(meta *storepb.MetaRecord) bool { return meta.Import != nil && !meta.Import.Done }

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
	record := a.meta.Import
	underWay := importing(a.meta)
	switch {
	case m.GetAbandon():
		return a.abandonImport(m, result)
	case record != nil && record.Id == m.Id && m.Step <= record.Step:
		return nil // it was done
	case underWay && record.Id != m.Id:
		refuse(result, storepb.Code_IMPORTING, "it is not this one")
		return nil
	case !underWay && m.Step != 1, underWay && m.Step != record.Step+1:
		refuse(result, storepb.Code_INVALID, "step %d of an import comes after step %d", m.Step,
			record.GetStep())
		return nil
	case !underWay:
		record = &storepb.ImportRecord{Id: m.Id, Revision: m.Revision, Source: m.Source}
	default:
		record = proto.Clone(record).(*storepb.ImportRecord)
	}
	record.Step = m.Step
	return a.read(func(r *reader) error {
		if !underWay {
			if err := checkEmpty(r, m, result); err != nil || result.Code != storepb.Code_OK {
				return err
			}
		}
		if err := checkImported(r, m, record, result); err != nil || result.Code != storepb.Code_OK {
			return err
		}
		if m.Enable != nil {
			err := a.changeAuth(&storepb.AuthChange{Change: &storepb.AuthChange_Enable{Enable: m.Enable}},
				result)
			if err != nil || result.Code != storepb.Code_OK {
				return err
			}
		}
		if !underWay && a.meta.Revision > initialRevision {
			// There was something. Nobody is to take what comes for what comes after it.
			if err := a.clear(tableVersion, tableEvent); err != nil {
				return err
			}
			a.meta.Revision++
			a.meta.Compacted = a.meta.Revision
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

// checkImported looks whether a step can be what another store had, and goes on with the record.
func checkImported(
	r *reader, m *storepb.Import, record *storepb.ImportRecord, result *storepb.Result,
) error {
	leases := map[int64]bool{}
	for _, l := range m.Leases {
		if l.GetId() == 0 || l.TtlMillis == 0 || l.TtlMillis > lease.MaxTermMillis ||
			l.LeftMillis > l.TtlMillis ||
			record.Leases > 0 && uint64(l.Id) <= uint64(record.LastLease) {
			refuse(result, storepb.Code_INVALID, "lease %d, after lease %d", l.GetId(), record.LastLease)
			return nil
		}
		record.Leases, record.LastLease = record.Leases+1, l.Id
		leases[l.Id] = true
	}
	changes := map[uint32]bool{}
	for _, v := range m.Versions {
		switch {
		case !soundVersion(v, record):
			refuse(result, storepb.Code_INVALID, "key %s at revision %d", keys.Pretty(v.GetKey()),
				v.GetModRevision())
			return nil
		case v.ModRevision == record.Revision:
			_, exists, err := r.get(r.event(v.ModRevision, v.Number))
			if err != nil {
				return err
			}
			if exists || changes[v.Number] {
				refuse(result, storepb.Code_INVALID, "change %d of revision %d comes twice", v.Number,
					v.ModRevision)
				return nil
			}
			changes[v.Number] = true
			record.Changes, record.HighestChange = record.Changes+1, max(record.HighestChange, v.Number)
		}
		if v.Lease != 0 && !leases[v.Lease] {
			_, exists, err := r.get(r.lease(v.Lease))
			if err != nil {
				return err
			}
			if !exists {
				refuse(result, storepb.Code_LEASE_NOT_FOUND, "lease %d of key %s", v.Lease,
					keys.Pretty(v.Key))
				return nil
			}
			leases[v.Lease] = true
		}
		record.Versions, record.LastKey = record.Versions+1, v.Key
	}
	if m.End && record.Changes > 0 && uint64(record.HighestChange)+1 != record.Changes {
		refuse(result, storepb.Code_INVALID, "revision %d has %d changes, and one of number %d",
			record.Revision, record.Changes, record.HighestChange)
	}
	record.Done = m.End
	return nil
}

// soundVersion says whether a version can be the next one of an import.
func soundVersion(v *storepb.ImportedVersion, record *storepb.ImportRecord) bool {
	switch {
	case len(v.GetKey()) == 0, bytes.Compare(v.Key, record.LastKey) <= 0:
		return false
	case v.Version == 0:
		return v.ModRevision == record.Revision && v.CreateRevision == 0 && v.Lease == 0 &&
			len(v.Value) == 0
	}
	return v.CreateRevision > 0 && v.CreateRevision <= v.ModRevision &&
		v.ModRevision <= record.Revision
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
		if err := a.set(a.store.layout.version(v.Key, v.ModRevision), record); err != nil {
			return err
		}
		if v.Lease != 0 {
			a.attached[v.Lease]++
			if err := a.batch.Set(a.store.layout.attached(v.Lease, v.Key), nil, nil); err != nil {
				return err
			}
		}
		if v.ModRevision == revision {
			if err := a.batch.Set(a.store.layout.event(revision, v.Number), v.Key, nil); err != nil {
				return err
			}
		}
	}
	if m.End {
		a.meta.Revision, a.meta.Compacted, a.replaced = revision, revision, true
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
	a.meta.Import, a.metaChanged, a.forgetLeases = nil, true, true
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

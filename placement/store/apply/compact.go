package apply

import (
	"bytes"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// compact makes revisions below c unreadable, and removes what cannot be seen at c or later: the
// events below c, every version that has a successor at or below c, and deletions below c. It stops
// after as many events as the command allows; reads at c and later do not see the events and
// versions that are left.
//
// The events name the changed keys, so the cost depends on the removed data, not on the size of the
// store. INVARIANT: after a complete compaction at c, a key has at most one version at or below c.
// So for each event that was not compacted before, it is enough to remove the version right below
// it, and the event's own version if it is a deletion below c. INVARIANT: events are handled in
// their order, and each event below c is removed when it is handled. So a compaction at a later
// revision begins with the first existing event, whatever an earlier compaction has left.
func (a *Application) compact(m *storepb.Compact, result *storepb.Result) error {
	c := m.GetRevision()
	from := a.machine.layout.FirstEvent(a.Meta)
	switch {
	case m.GetResume():
		rest := a.Meta.CompactionRest
		if c != a.Meta.Compacted || rest == nil {
			return nil // already done
		}
		from = a.machine.layout.Event(rest.Revision, rest.Number)
	case c > a.Meta.Revision:
		command.Refuse(result, storepb.Code_FUTURE_REVISION,
			"revision %d was asked for, the newest is %d",
			c, a.Meta.Revision)
		return nil
	case c <= a.Meta.Compacted:
		command.Refuse(result, storepb.Code_COMPACTED, "")
		result.Compacted = a.Meta.Compacted
		return nil
	}
	most := m.GetEvents()
	if most == 0 {
		most = math.MaxUint64
	}
	rest, err := a.removeCompacted(from, c, most)
	if err != nil {
		return err
	}
	a.Meta.Compacted, a.Meta.CompactionRest = c, rest
	a.metaChanged = true
	return nil
}

// removeCompacted handles up to a number of events, and returns where to continue; nil if nothing
// is left to remove.
func (a *Application) removeCompacted(
	from []byte, c, most uint64,
) (rest *storepb.CompactionRest, err error) {
	err = a.read(func(r *tables.Reader) error {
		it, err := r.Iterator.Clone(pebble.CloneOptions{})
		if err != nil {
			return err
		}
		defer it.Close()
		versions := &tables.Reader{Layout: r.Layout, Iterator: it, Meta: r.Meta}
		end := r.Event(c+1, 0)
		looked := uint64(0)
		for ok := r.Seek(from, end); ok; ok = r.Next(end) {
			revision, n, err := tables.DecodeEventKey(r.Iterator.Key())
			if err != nil {
				return err
			}
			if looked++; looked > most {
				rest = &storepb.CompactionRest{Revision: revision, Number: n}
				return nil
			}
			key, err := r.Iterator.ValueAndErr()
			if err != nil {
				return err
			}
			if err := a.dropVersions(versions, key, revision, c); err != nil {
				return err
			}
			if revision < c {
				a.removed(r.PairBytes())
				if err := a.batch.Delete(r.Iterator.Key(), nil); err != nil {
					return err
				}
			}
		}
		return r.Iterator.Error()
	})
	return rest, err
}

// dropVersions removes the versions that the version of a key at a revision makes superfluous.
func (a *Application) dropVersions(r *tables.Reader, key []byte, revision, c uint64) error {
	kv, err := r.Version(key, revision)
	if err != nil || kv == nil {
		return err
	}
	if kv.ModRevision == revision {
		if kv.Version == 0 && revision < c {
			a.removed(r.PairBytes())
			if err := a.batch.Delete(r.Iterator.Key(), nil); err != nil {
				return err
			}
		}
		if !r.Iterator.Next() {
			return r.Iterator.Error()
		}
	}
	if older, _, err := tables.DecodeVersionKey(r.Iterator.Key()); err != nil || !bytes.Equal(older,
		key) {
		return nil // another key, or the next table
	}
	deletion, err := r.AtDeletion()
	if err != nil {
		return err
	}
	// INVARIANT: a deletion below an event of the compaction lies below c, and its own event comes
	// before: the deletion was removed with its own event, and its bytes were subtracted then.
	if !deletion {
		a.removed(r.PairBytes())
	}
	return a.batch.Delete(r.Iterator.Key(), nil)
}

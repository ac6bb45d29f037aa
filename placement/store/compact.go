package store

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// compactEvents is about how many events one command removes when the leader splits up a
// compaction, so that none stops the log for long.
const compactEvents = 4_000

// compact removes what cannot be seen at revision c or later: the events below c, every version
// that has a successor at or below c, and deletions below c.
//
// The events tell which keys have changed, so that it costs as much as what it removes, whatever
// the size of the store.
// INVARIANT: after a compaction at c a key has at most one version at or below c. So it is enough
// to remove, for each event that was not compacted before, the version right below it, and the
// event's own if it is a deletion below c.
func (a *application) compact(c uint64, result *storepb.Result) error {
	switch {
	case c > a.meta.Revision:
		refuse(result, storepb.Code_FUTURE_REVISION, "revision %d was asked for, the newest is %d",
			c, a.meta.Revision)
		return nil
	case c <= a.meta.Compacted:
		refuse(result, storepb.Code_COMPACTED, "")
		result.Compacted = a.meta.Compacted
		return nil
	}
	err := a.read(func(r *reader) error {
		it, err := r.it.Clone(pebble.CloneOptions{})
		if err != nil {
			return err
		}
		defer it.Close()
		versions := &reader{layout: r.layout, it: it, meta: r.meta}
		end := r.event(c+1, 0)
		for ok := r.seek(r.table(tableEvent), end); ok; ok = r.next(end) {
			revision, _, err := decodeEventKey(r.it.Key())
			if err != nil {
				return err
			}
			key, err := r.it.ValueAndErr()
			if err != nil {
				return err
			}
			if err := a.dropVersions(versions, key, revision, c); err != nil {
				return err
			}
			if revision < c {
				if err := a.batch.Delete(r.it.Key(), nil); err != nil {
					return err
				}
			}
		}
		return r.it.Error()
	})
	if err != nil {
		return err
	}
	a.meta.Compacted = c
	a.metaChanged = true
	return nil
}

// dropVersions removes what the version of a key at a revision makes superfluous.
func (a *application) dropVersions(r *reader, key []byte, revision, c uint64) error {
	kv, err := r.version(key, revision)
	if err != nil || kv == nil {
		return err
	}
	if kv.ModRevision == revision {
		if kv.Version == 0 && revision < c {
			if err := a.batch.Delete(r.it.Key(), nil); err != nil {
				return err
			}
		}
		if !r.it.Next() {
			return r.it.Error()
		}
	}
	if older, _, err := decodeVersionKey(r.it.Key()); err != nil || !bytes.Equal(older, key) {
		return nil // another key, or the next table
	}
	return a.batch.Delete(r.it.Key(), nil)
}

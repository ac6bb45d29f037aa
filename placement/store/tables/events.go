package tables

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Events visits the changes from a position on, in order, each with its number within its revision,
// until visit returns false. versions reads the same state.
func (r *Reader) Events(
	from watch.Position, visit func(kv *storepb.KeyValue, n uint32, versions *Reader) (bool, error),
) error {
	if from.Revision < r.Meta.Compacted {
		return &command.CompactedError{Revision: r.Meta.Compacted}
	}
	// Versions are read with a second iterator of the same state.
	it, err := r.Iterator.Clone(pebble.CloneOptions{})
	if err != nil {
		return fmt.Errorf("read the core's events: %w", err)
	}
	versions := &Reader{Layout: r.Layout, Iterator: it, Meta: r.Meta}
	defer versions.Close()
	end := r.End(TableEvent)
	for ok := r.Seek(r.Event(from.Revision, from.Number), end); ok; ok = r.Next(end) {
		revision, n, err := DecodeEventKey(r.Iterator.Key())
		if err != nil {
			return err
		}
		key, err := r.Iterator.ValueAndErr()
		if err != nil {
			return err
		}
		kv, err := versions.Version(key, revision)
		if err != nil {
			return err
		}
		if kv == nil || kv.ModRevision != revision {
			return fmt.Errorf("the core's store has an event of key %s at revision %d and no "+
				"such version", keys.Pretty(key), revision)
		}
		if more, err := visit(kv, n, versions); err != nil || !more {
			return err
		}
	}
	return r.Iterator.Error()
}

// Changes visits the events from a position on, in order, each with its position, until visit
// returns false. Previous values below the revision of the latest compaction are left out, whether
// or not this member has removed them yet.
func (r *Reader) Changes(
	from watch.Position, previous bool, visit func(*watch.Event, watch.Position) bool,
) error {
	return r.Events(from, func(kv *storepb.KeyValue, n uint32, versions *Reader) (bool, error) {
		event := &watch.Event{KV: kv}
		if previous && kv.ModRevision > r.Meta.Compacted {
			var err error
			if event.Previous, err = versions.At(kv.Key, kv.ModRevision-1); err != nil {
				return false, err
			}
		}
		return visit(event, watch.Position{Revision: kv.ModRevision, Number: n}), nil
	})
}

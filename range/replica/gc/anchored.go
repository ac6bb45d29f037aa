package gc

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// eachAnchored calls visit for the locks and records in a span of state keys, until visit returns
// false. n counts the calls from 0; value is valid until visit returns, and nil for locks.
func eachAnchored(state *engine.State, span keys.Span,
	visit func(n int, key []byte, of txn.Anchored, id txn.ID, value []byte) (bool, error)) error {
	n := -1
	return storage.Each(state, span, func(i *pebble.Iterator) (more bool, err error) {
		_, suffix, err := keys.DecodeAnchorKey(i.Key())
		if err != nil {
			return false, fmt.Errorf("%w: %w", storage.ErrRecord, err)
		}
		of, id := txn.Classify(suffix)
		var value []byte
		if of != txn.AnchoredLock {
			if value, err = i.ValueAndErr(); err != nil {
				return false, err
			}
		}
		n++
		if more, err = visit(n, i.Key(), of, id, value); err != nil {
			err = fmt.Errorf("record %s: %w", keys.PrettyState(i.Key()), err)
		}
		return more, err
	})
}

// committed returns the committed transaction whose record is at a state key of a partition.
func committed(d *clusterpb.Partition, key []byte, id txn.ID, record *txn.Record) (txn.Committed,
	error) {
	anchor, _, err := keys.DecodeAnchorKey(key)
	if err != nil {
		return txn.Committed{}, fmt.Errorf("%w: %w", storage.ErrRecord, err)
	}
	return txn.Committed{ID: id, Keyspace: keys.KeyspaceID(d.GetKeyspace()),
		Anchor: keys.UserKey(d, anchor), At: record.Timestamp,
		Participants: record.Participants}, nil
}

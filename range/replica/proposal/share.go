package proposal

import (
	"errors"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// errAddsData ends the walk over a batch.
var errAddsData = errors.New("the entry adds data")

// ShareOf returns how much of the reserve of a disk without room an encoded entry may use. An entry
// that cannot be read may use nothing.
func ShareOf(data []byte) group.Share {
	switch KindOf(data) {
	case KindThreshold, KindRemove, KindDescriptor, KindSplit, KindFreeze, KindMerge:
		return group.CollectionShare
	case KindWrite, KindTransaction:
		entry, err := Decode(data)
		if err == nil && !addsData(entry.Batch) {
			return group.DeletionShare
		}
	}
	return group.NoShare
}

// addsData reports whether a batch writes a value other than that of a lock which it deletes, or
// locks a key for a value. A value that replaces a lock was in the lock before.
func addsData(batch []byte) bool {
	values, unlocked := 0, 0
	err := WalkBatch(batch, func(deletion bool, key, value []byte) error {
		if keys.IsData(key) {
			if deletion {
				return nil
			}
			header, _, err := mvcc.DecodeHeader(value)
			if err == nil && header.Kind != mvcc.KindTombstone {
				values++
			}
			return err
		}
		_, suffix, err := keys.DecodeAnchorKey(key)
		if err != nil {
			return err
		}
		if of, _ := txn.Classify(suffix); of != txn.AnchoredLock {
			return nil // a record is small
		}
		if deletion {
			unlocked++
			return nil
		}
		lock, err := txn.DecodeLock(value)
		if err == nil && lock.Kind == kvpb.Mutation_PUT {
			err = errAddsData
		}
		return err
	})
	return err != nil || values > unlocked
}

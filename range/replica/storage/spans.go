package storage

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Spans returns all spans of state keys of a partition, in ascending order.
func Spans(id keys.PartitionID, span keys.Span) [3]keys.Span {
	return [...]keys.Span{keys.LocalSpan(id), keys.AnchorSpan(span), keys.DataSpan(span)}
}

// Each calls visit for each record of a reader in a span of state keys, in ascending order, until
// visit returns false or an error. The iterator belongs to Each.
func Each(reader engine.Reader, span keys.Span,
	visit func(i *pebble.Iterator) (more bool, err error)) (err error) {
	i, err := reader.NewIter(&pebble.IterOptions{LowerBound: span.Start, UpperBound: span.End})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := i.Close(); err == nil {
			err = closeErr
		}
	}()
	for i.First(); i.Valid(); i.Next() {
		if more, err := visit(i); err != nil || !more {
			return err
		}
	}
	return i.Error()
}

// CompareKeys orders state keys as the engine does.
func CompareKeys(a, b []byte) int { return cockroachkvs.Compare(a, b) }

// Contains says whether a span of state keys contains a key.
func Contains(span keys.Span, key []byte) bool {
	return CompareKeys(key, span.Start) >= 0 && CompareKeys(key, span.End) < 0
}

// CheckKey checks whether bytes from outside are a state key at all: the engine's comparer assumes
// it.
func CheckKey(key []byte) error {
	if _, _, err := keys.DecodeVersioned(key); err == nil {
		return nil
	}
	if _, _, err := keys.DecodeLocalKey(key); err == nil {
		return nil
	}
	if _, _, err := keys.DecodeAnchorKey(key); err == nil {
		return nil
	}
	return fmt.Errorf("%s is not a state key", keys.Pretty(key))
}

// DeleteLocal deletes what is stored by a partition's id.
func DeleteLocal(b *engine.StateBatch, id keys.PartitionID) error {
	for _, suffix := range [...]string{keys.SuffixDescriptor, keys.SuffixApplied} {
		if err := b.Delete(keys.LocalKey(id, suffix), nil); err != nil {
			return err
		}
	}
	return nil
}

// DeleteBeyond deletes the part of the span had that is not in the span has.
func DeleteBeyond(b *engine.StateBatch, had, has keys.Span) error {
	for _, beyond := range [...]keys.Span{{Start: had.Start, End: has.Start},
		{Start: has.End, End: had.End}} {
		if beyond.Empty() || bytes.Equal(beyond.Start, beyond.End) {
			continue
		}
		for _, gone := range [...]keys.Span{keys.AnchorSpan(beyond), keys.DataSpan(beyond)} {
			if err := b.DeleteRange(gone.Start, gone.End, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

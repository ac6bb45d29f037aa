package mvcc

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// KeySizes visits the keys of a span of internal keys in ascending order, each with the size of all
// its versions: the lengths of state keys and values, without headers. It ends when visit returns
// false, or before the next key once it has looked at `versions` versions; then resume is the next
// key. The visited key is valid during the call only.
func KeySizes(r engine.Reader, span keys.Span, versions int,
	visit func(key []byte, size int64) bool) (resume []byte, err error) {
	if span.Empty() {
		return nil, nil
	}
	bounds := keys.DataSpan(span)
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: bounds.Start, UpperBound: bounds.End})
	if err != nil {
		return nil, fmt.Errorf("sizes of keys in %s: %w", span, err)
	}
	defer func() {
		if closeErr := iter.Close(); err == nil {
			err = closeErr
		}
	}()
	var prefix, key []byte
	size, seen := int64(0), 0
	for ok := iter.First(); ok; ok = iter.Next() {
		stateKey := iter.Key()
		internal, v, err := decode(iter)
		if err != nil {
			return nil, fmt.Errorf("sizes of keys in %s: %w", span, err)
		}
		if p := dataPrefix(stateKey); !bytes.Equal(p, prefix) {
			if prefix != nil && !visit(key, size) {
				return nil, nil
			}
			if seen >= versions {
				return bytes.Clone(internal), nil
			}
			prefix, key, size = append(prefix[:0], p...), append(key[:0], internal...), 0
		}
		size += int64(len(stateKey) + len(v.Value))
		seen++
	}
	if err := iter.Error(); err != nil {
		return nil, fmt.Errorf("sizes of keys in %s: %w", span, err)
	}
	if prefix != nil {
		visit(key, size)
	}
	return nil, nil
}

// LastKey returns the last internal key of a span that has a version, nil if there is none.
func LastKey(r engine.Reader, span keys.Span) (key []byte, err error) {
	if span.Empty() {
		return nil, nil
	}
	bounds := keys.DataSpan(span)
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: bounds.Start, UpperBound: bounds.End})
	if err != nil {
		return nil, fmt.Errorf("last key in %s: %w", span, err)
	}
	defer func() {
		if closeErr := iter.Close(); err == nil {
			err = closeErr
		}
	}()
	if !iter.Last() {
		return nil, iter.Error()
	}
	internal, _, err := decode(iter)
	return bytes.Clone(internal), err
}

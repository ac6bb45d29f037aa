package splitrecovery

import (
	"bytes"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
)

// Strays returns the spans of internal keys that are in no partition's span and have records in the
// state. ok is set if all spans can be read.
func Strays(state engine.Reader) (strays []keys.Span, ok bool, err error) {
	var spans []keys.Span
	ok = true
	err = storage.EachRecorded(state, func(id keys.PartitionID, r storage.Recorded, err error) {
		if err != nil {
			ok = false
			return
		}
		spans = append(spans, keys.PartitionSpan(r.Descriptor))
	})
	if err != nil || !ok {
		return nil, false, err
	}
	slices.SortFunc(spans, func(a, b keys.Span) int { return bytes.Compare(a.Start, b.Start) })
	for _, gap := range gaps(spans) {
		some, err := has(state, keys.AnchorSpan(gap))
		if err == nil && !some {
			some, err = has(state, keys.DataSpan(gap))
		}
		if err != nil {
			return nil, true, err
		}
		if some {
			strays = append(strays, gap)
		}
	}
	return strays, true, nil
}

// Sweep removes records of the state that are in no partition's span: a crash may leave the part
// that a replica has lost by a snapshot. It does nothing if the span of a replica cannot be read.
// No replica is open.
func (d *Directory) Sweep() (removed int, err error) {
	strays, _, err := Strays(d.State)
	if err != nil || len(strays) == 0 {
		return 0, err
	}
	b := d.State.NewBatch()
	defer b.Close()
	for _, stray := range strays {
		for _, s := range [...]keys.Span{keys.AnchorSpan(stray), keys.DataSpan(stray)} {
			if err := b.DeleteRange(s.Start, s.End, nil); err != nil {
				return 0, err
			}
		}
	}
	return len(strays), d.State.Commit(b)
}

// gaps returns the spans of internal keys between ordered spans.
func gaps(spans []keys.Span) (between []keys.Span) {
	var at []byte
	for _, s := range spans {
		if bytes.Compare(at, s.Start) < 0 {
			between = append(between, keys.Span{Start: at, End: s.Start})
		}
		if len(s.End) == 0 {
			return between
		}
		if bytes.Compare(at, s.End) < 0 {
			at = s.End
		}
	}
	return append(between, keys.Span{Start: at})
}

func has(state engine.Reader, span keys.Span) (some bool, err error) {
	i, err := state.NewIter(&pebble.IterOptions{LowerBound: span.Start, UpperBound: span.End})
	if err != nil {
		return false, err
	}
	some = i.First()
	err = i.Error()
	if closeErr := i.Close(); err == nil {
		err = closeErr
	}
	return some, err
}

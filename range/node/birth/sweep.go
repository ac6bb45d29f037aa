package birth

import (
	"bytes"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
)

// Sweep removes what is in the state and in no partition's span: a crash may leave the part that a
// replica has lost by a snapshot. It does nothing, and says so, if the span of a replica cannot be
// read. No replica is open.
func (d *Directory) Sweep() (removed int, ok bool, err error) {
	var spans []keys.Span
	ok = true
	err = replica.EachRecorded(d.State, func(id keys.PartitionID, r replica.Recorded, err error) {
		if err != nil {
			ok = false
			return
		}
		spans = append(spans, keys.PartitionSpan(r.Descriptor))
	})
	if err != nil || !ok {
		return 0, false, err
	}
	slices.SortFunc(spans, func(a, b keys.Span) int { return bytes.Compare(a.Start, b.Start) })
	b := d.State.NewBatch()
	defer b.Close()
	for _, gap := range gaps(spans) {
		for _, s := range [...]keys.Span{keys.AnchorSpan(gap), keys.DataSpan(gap)} {
			some, err := d.has(s)
			if err != nil {
				return 0, true, err
			}
			if !some {
				continue
			}
			removed++
			if err := b.DeleteRange(s.Start, s.End, nil); err != nil {
				return 0, true, err
			}
		}
	}
	if removed == 0 {
		return 0, true, nil
	}
	return removed, true, d.State.Commit(b)
}

// gaps are the spans of internal keys between spans that are in order.
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

func (d *Directory) has(span keys.Span) (some bool, err error) {
	i, err := d.State.NewIter(&pebble.IterOptions{LowerBound: span.Start, UpperBound: span.End})
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

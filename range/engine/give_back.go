package engine

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// giveBackLeast and giveBackMost bound how many bytes of tables GiveBack compacts at a time, which
// is a part of the free space (giveBackPart). A compaction writes the remaining data of its tables
// before it removes them, so a small one needs little space.
const (
	giveBackLeast = 1 << 20
	giveBackMost  = 16 << 20
	giveBackPart  = 4
)

// GiveBack frees the disk space of what was deleted from a span, which otherwise stays in its
// tables until more is written. It flushes the memtables that have keys of the span, and compacts
// the tables, a part of the span at a time. When it returns nil, the tables of the span have little
// but what was not deleted when it began.
//
// It works on a nearly full disk, with less space than other compactions need, and gives up with
// ErrNoRoom when that is not enough; parts that were done have freed their space. It waits for
// space for the flush, and for its turn, as long as ctx allows.
func (s *State) GiveBack(ctx context.Context, span keys.Span) error {
	return s.giveBack(ctx, span)
}

// giveBack is State.GiveBack and Log.GiveBack.
func (s *store) giveBack(ctx context.Context, span keys.Span) error {
	if err := s.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // until this call returns
		defer close(ended)
		select {
		case <-s.g.failed:
		case <-s.g.closing:
		case <-ctx.Done():
		}
		cancel()
	}()
	defer func() { cancel(); <-ended }()
	s.g.reclaim()
	parts, err := s.partsOf(span)
	if err != nil {
		return err
	}
	for _, part := range parts {
		s.g.reclaim() // there was space for a moment
		if err := s.db.Compact(ctx, part.Start, part.End, false); err != nil {
			return s.explain(fmt.Errorf("give back what was deleted in %s: %w", s.dir, err))
		}
	}
	return s.check()
}

// partsOf divides a span at the ends of tables of its lowest level, so that each part has about as
// many bytes as are compacted at a time.
func (s *store) partsOf(span keys.Span) (parts []keys.Span, err error) {
	levels, err := s.db.SSTables(pebble.WithKeyRangeFilter(span.Start, span.End))
	if err != nil {
		return nil, fmt.Errorf("list the tables of a span in %s: %w", s.dir, err)
	}
	most := min(max(giveBackLeast, s.FreeBytes()/giveBackPart), giveBackMost)
	start, size := span.Start, uint64(0)
	for level := len(levels) - 1; level >= 0 && len(parts) == 0; level-- {
		for _, table := range levels[level] {
			end := table.Largest.UserKey
			if size += table.Size; size < most || level == 0 ||
				s.pebbleOptions.Comparer.Compare(start, end) >= 0 ||
				s.pebbleOptions.Comparer.Compare(end, span.End) >= 0 {
				continue
			}
			parts = append(parts, keys.Span{Start: start, End: bytes.Clone(end)})
			start, size = parts[len(parts)-1].End, 0
		}
	}
	return append(parts, keys.Span{Start: start, End: span.End}), nil
}

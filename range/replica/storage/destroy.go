package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Gone names a partition whose state is to be removed.
type Gone struct {
	ID keys.PartitionID
	// Span is the partition's span of data; nil if it has only what is stored by its id.
	Span *keys.Span
}

// Destroy removes all data of partitions from a state database, durably when it returns. Their
// replicas are closed. It takes a few flushes, however many partitions there are, and a sync for
// each contiguous piece of their data; that of a hash keyspace is one piece. After an error, or a
// crash, it can be repeated.
func Destroy(ctx context.Context, state *engine.State, gone ...Gone) error {
	if len(gone) == 0 {
		return nil
	}
	if err := destroy(ctx, state, gone); err != nil {
		return fmt.Errorf("removing partition %s and %d others: %w", gone[0].ID, len(gone)-1, err)
	}
	return nil
}

func destroy(ctx context.Context, state *engine.State, gone []Gone) error {
	var spans [3][]keys.Span
	for _, g := range gone {
		if g.Span == nil {
			spans[0] = append(spans[0], keys.LocalSpan(g.ID))
			continue
		}
		for i, span := range Spans(g.ID, *g.Span) {
			spans[i] = append(spans[i], span)
		}
	}
	for i := range spans {
		spans[i] = adjacent(spans[i])
	}
	// The local and the anchor spans are deleted; adjacent data spans are excised together.
	var paths []string
	for _, deleted := range spans[:2] {
		if len(deleted) == 0 {
			continue
		}
		path, err := deletion(state, deleted)
		if err != nil {
			state.DiscardTables(paths)
			return err
		}
		paths = append(paths, path)
	}
	if len(spans[2]) == 0 {
		return state.Ingest(ctx, paths)
	}
	return state.ExciseAll(ctx, paths, spans[2])
}

// adjacent sorts spans, and joins those that are next to each other. It changes the slice.
func adjacent(spans []keys.Span) []keys.Span {
	slices.SortFunc(spans, func(a, b keys.Span) int { return CompareKeys(a.Start, b.Start) })
	if len(spans) == 0 {
		return nil
	}
	joined := spans[:1]
	for _, s := range spans[1:] {
		last := &joined[len(joined)-1]
		if CompareKeys(s.Start, last.End) > 0 {
			joined = append(joined, s)
		} else if CompareKeys(s.End, last.End) > 0 {
			last.End = s.End
		}
	}
	return joined
}

// deletion makes a table that deletes spans, which are in ascending order.
func deletion(state *engine.State, spans []keys.Span) (path string, err error) {
	table, err := state.NewTableWriter()
	if err != nil {
		return "", err
	}
	defer table.Abort()
	for _, span := range spans {
		if err := table.DeleteRange(span.Start, span.End); err != nil {
			return "", err
		}
	}
	return table.Finish()
}

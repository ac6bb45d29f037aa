package replica

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2/cockroachkvs"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Destroy removes everything that a partition has in a state database, durably when it returns. The replica is closed.
func Destroy(ctx context.Context, state *engine.State, id keys.PartitionID, span keys.Span) error {
	if err := destroy(ctx, state, id, span); err != nil {
		return fmt.Errorf("removing partition %s: %w", id, err)
	}
	return nil
}

func destroy(ctx context.Context, state *engine.State, id keys.PartitionID, span keys.Span) error {
	spans := replicatedSpans(id, span)
	var paths []string
	// The local and the anchor span by a deletion each; the data is excised.
	for _, span := range spans[:2] {
		path, err := deletion(state, span)
		if err != nil {
			state.DiscardTables(paths)
			return err
		}
		paths = append(paths, path)
	}
	return state.IngestAndExcise(ctx, paths, spans[2])
}

// deletion makes a table that deletes a span.
func deletion(state *engine.State, span keys.Span) (path string, err error) {
	table, err := state.NewTableWriter()
	if err != nil {
		return "", err
	}
	defer table.Abort()
	if err := table.DeleteRange(span.Start, span.End); err != nil {
		return "", err
	}
	return table.Finish()
}

// Destroy closes the replica and removes everything that the partition has on this node.
func (r *Replica) Destroy(ctx context.Context) error {
	if err := r.Close(); err != nil {
		return err
	}
	return Destroy(ctx, r.state, r.id, keys.PartitionSpan(r.Descriptor()))
}

// compareStateKeys orders state keys as the engine does.
func compareStateKeys(a, b []byte) int { return cockroachkvs.Compare(a, b) }

func containsState(span keys.Span, key []byte) bool {
	return compareStateKeys(key, span.Start) >= 0 && compareStateKeys(key, span.End) < 0
}

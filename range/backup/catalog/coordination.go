package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
)

// ErrNoCoordination: a backup has no coordination store.
var ErrNoCoordination = errors.New("the backup has no coordination store")

// Coordination reads a copy of the coordination store, or a set of its changes, part by part.
func (c *Catalog) Coordination(ctx context.Context, blob *manifest.Blob,
	part func([]byte) error) error {
	if blob == nil {
		return ErrNoCoordination
	}
	kind := manifest.CoordinationKind
	if blob.Changes {
		kind = manifest.CoordinationChangesKind
	}
	for i, name := range blob.Names {
		sealed, err := c.target.Get(ctx, name)
		if err != nil {
			return err
		}
		if err := (archive.Sum{SHA256: blob.Sums[i],
			Size: int64(blob.Sizes[i])}).Check(sealed); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		data, err := archive.Unseal(sealed, kind, c.identities)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := part(data); err != nil {
			return err
		}
	}
	return nil
}

package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/backup/manifest"
)

// ErrNeeded: other backups continue the backup that should be deleted.
var ErrNeeded = errors.New("other backups continue it")

// Delete removes all objects of a backup, complete or not. It removes nothing if other backups
// continue the backup. Delete may be repeated. It returns the number of removed objects.
func (c *Catalog) Delete(ctx context.Context, id string) (removed int, err error) {
	if bad := manifest.CheckID(id); bad != "" {
		return 0, errors.New(bad)
	}
	contents, err := c.List(ctx)
	if err != nil {
		return 0, err
	}
	for _, head := range contents.Complete.Sorted() {
		if head.Parent == id {
			return 0, fmt.Errorf("the backup %s is not deleted: %w, such as %s; delete these first", id,
				ErrNeeded, head.ID)
		}
	}
	// The head goes first: from then on the backup is in no list of complete backups.
	if err := c.target.Delete(ctx, manifest.HeadName(id)); err != nil {
		return 0, err
	}
	for object, err := range c.target.List(ctx, manifest.Prefix(id)) {
		if err != nil {
			return removed, err
		}
		if err := c.target.Delete(ctx, object.Name); err != nil {
			return removed, err
		}
		removed++
	}
	if contents.Complete[id] != nil || contents.Damaged[id] != nil {
		removed++
	}
	left, err := c.target.Sweep(ctx, manifest.Prefix(id), time.Now())
	return removed + left, err
}

package backup

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// keepPoint is the time for which the manifests of the last restored moment are kept for further
// units.
const keepPoint = time.Minute

// recentPoint has the manifests of the last restored moment. No other lock is taken while its lock
// is held.
type recentPoint struct {
	mu    sync.Mutex
	of    string
	point *manifest.Point
	until time.Time
}

// get returns the manifests that the restore of a unit needs.
func (c *recentPoint) get(ctx context.Context, from *catalog.Catalog,
	r *backuppb.LoadRequest) (*manifest.Point, error) {
	at := wire.FromClusterTimestamp(r.GetAt())
	of := strings.Join([]string{r.GetTarget(), r.GetBackup(), r.GetLog(), at.String()}, " ")
	c.mu.Lock()
	if c.of == of && time.Now().Before(c.until) {
		defer c.mu.Unlock()
		return c.point, nil
	}
	c.mu.Unlock()
	point, err := from.Point(ctx, r.GetBackup(), r.GetLog(), at)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of, c.point, c.until = of, point, time.Now().Add(keepPoint)
	return point, nil
}

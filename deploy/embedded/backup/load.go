package backup

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/load"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// keepPoint is for how long the manifests of a moment that was restored last are kept for other
// units.
const keepPoint = time.Minute

// recentPoint has the manifests of the moment that was restored last. Its lock is a leaf.
type recentPoint struct {
	mu    sync.Mutex
	of    string
	point *manifest.Point
	until time.Time
}

// get reads what the restore of a unit needs.
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

// Load implements backuppb.WorkerServer.
func (w *Worker) Load(r *backuppb.LoadRequest, stream backuppb.Worker_LoadServer) error {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return err
	}
	identities, err := identitiesOf(r.GetIdentities())
	for _, id := range []string{r.GetBackup(), r.GetLog()} {
		if bad := manifest.CheckID(id); bad != "" && (id == r.GetBackup() || id != "") {
			return status.Error(codes.InvalidArgument, bad)
		}
	}
	if err != nil {
		return failure(err)
	}
	ctx := stream.Context()
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return failure(ctx.Err())
	}
	store, err := w.config.Open(ctx, r.GetTarget())
	if err != nil {
		return failure(err)
	}
	defer store.Close()
	c := catalog.New(store, identities)
	point, err := w.point.get(ctx, c, r)
	if err != nil {
		return failure(err)
	}
	if int(r.GetUnit()) >= len(point.Units) {
		return status.Errorf(codes.InvalidArgument, "the backup %s has no unit %d", r.Backup, r.Unit)
	}
	unit := point.Units[r.GetUnit()]
	ks := point.KeyspaceOf(unit.Keyspace)
	sender, err := w.config.Sender()
	if err != nil {
		return failure(err)
	}
	id := keys.KeyspaceID(r.GetKeyspace())
	to, err := sender.AwaitKeyspace(ctx, id)
	if err != nil {
		return failure(err)
	}
	if to.Hashed() != ks.Hashed || to.Info.HashPartitions != ks.Hashes {
		return status.Errorf(codes.InvalidArgument, "the keyspace %q is not partitioned as the one in "+
			"the backup", r.GetKeyspaceName())
	}
	t := &loadTeller{stream: stream}
	_, err = load.Rows(ctx, load.Config{Sender: sender, Progress: t.tell, Pause: w.pause(w.restores)},
		load.Destination{ID: id, Name: r.GetKeyspaceName(), Hashed: ks.Hashed},
		c.Records(ctx, point, ks, unit.Span()))
	if err != nil {
		w.config.Logger.Warn("a unit of a backup was not restored", "backup", r.Backup, "unit", r.Unit,
			"keyspace", r.GetKeyspaceName(), "error", err)
		return failure(err)
	}
	return t.over()
}

// loadTeller tells the caller of a Load how far it is.
type loadTeller struct {
	mu     sync.Mutex
	stream backuppb.Worker_LoadServer
	sum    load.Loaded
	told   time.Time
}

// tell adds a block, and tells of it if it is time.
func (t *loadTeller) tell(one load.Loaded) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Written += one.Written
	t.sum.Present += one.Present
	t.sum.Bytes += one.Bytes
	if time.Since(t.told) < tellEvery {
		return
	}
	t.told = time.Now()
	_ = t.stream.Send(t.answer(false)) // a caller that is gone ends the context, which Load sees
}

// answer has the counts since the answer before.
func (t *loadTeller) answer(over bool) *backuppb.LoadAnswer {
	a := &backuppb.LoadAnswer{Written: t.sum.Written, Present: t.sum.Present, Bytes: t.sum.Bytes,
		Over: over}
	t.sum = load.Loaded{}
	return a
}

// over tells of the rest.
func (t *loadTeller) over() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stream.Send(t.answer(true))
}

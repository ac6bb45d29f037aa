package backup

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/load"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
)

// keepLayers is for how long the manifests of a backup that was read last are kept for other units.
const keepLayers = time.Minute

// recentLayers are the manifests of the backup that was read last. Their lock is a leaf.
type recentLayers struct {
	mu     sync.Mutex
	of     string
	layers manifest.Layers
	until  time.Time
}

// get returns the manifests of a backup, which nobody changes.
func (c *recentLayers) get(ctx context.Context, from *catalog.Catalog, url,
	backup string) (manifest.Layers, error) {
	of := url + " " + backup
	c.mu.Lock()
	if c.of == of && time.Now().Before(c.until) {
		defer c.mu.Unlock()
		return c.layers, nil
	}
	c.mu.Unlock()
	layers, err := from.Layers(ctx, backup)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of, c.layers, c.until = of, layers, time.Now().Add(keepLayers)
	return layers, nil
}

// Load implements backuppb.WorkerServer.
func (w *Worker) Load(r *backuppb.LoadRequest, stream backuppb.Worker_LoadServer) error {
	if err := w.meant(r.GetCluster(), r.GetNode()); err != nil {
		return err
	}
	identities, err := identitiesOf(r.GetIdentities())
	if err == nil && manifest.CheckID(r.GetBackup()) != "" {
		return status.Error(codes.InvalidArgument, manifest.CheckID(r.GetBackup()))
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
	layers, err := w.layers.get(ctx, c, r.GetTarget(), r.GetBackup())
	if err != nil {
		return failure(err)
	}
	m := layers[len(layers)-1]
	if int(r.GetUnit()) >= len(m.Units) {
		return status.Errorf(codes.InvalidArgument, "the backup %s has no unit %d", r.Backup, r.Unit)
	}
	unit := m.Units[r.GetUnit()]
	ks := m.KeyspaceOf(unit.Keyspace)
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
	_, err = load.Rows(ctx, load.Config{Sender: sender, Progress: t.tell},
		load.Destination{ID: id, Name: r.GetKeyspaceName(), Hashed: ks.Hashed},
		c.Records(ctx, layers, ks, unit.Span()))
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

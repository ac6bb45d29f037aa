package backup

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Restore implements backups.Maker. It creates keyspaces with hidden names, has the data nodes fill
// them, and gives all of them their final names at once.
func (m *Maker) Restore(ctx context.Context, b *clusterpb.Backup,
	progress func(*timestamp, *clusterpb.BackupProgress),
	save func(context.Context, []byte) error) error {
	store, err := m.config.Open(ctx, b.Target)
	if err != nil {
		return err
	}
	defer store.Close()
	r := &restore{cluster: &cluster{Maker: m, backup: b}, progress: progress, save: save,
		loaded: slices.Clone(b.Restore.Loaded), chosen: make(map[uint32]*manifest.Keyspace),
		names: make(map[uint32]string), ids: make(map[uint32]uint32)}
	r.tell("read what the backup contains")
	identities, err := identitiesOf(b.Restore.Identities)
	if err != nil {
		return err
	}
	backups := catalog.New(store, identities)
	if r.point, err = backups.Point(ctx, b.Restore.Backup, b.Restore.Log,
		wire.FromClusterTimestamp(b.Restore.At)); err != nil {
		return err
	}
	if err := r.choose(); err != nil {
		return err
	}
	if err := r.checkSettings(); err != nil {
		return err
	}
	coordinating, err := r.coordinate(ctx, backups)
	if err != nil {
		return err
	}
	return errors.Join(r.do(ctx, coordinating), coordinating.close())
}

// do restores the chosen data.
func (r *restore) do(ctx context.Context, coordinating *coordinating) error {
	if r.backup.Restore.NoKeyspaces {
		if err := coordinating.fill(ctx); err != nil {
			return err
		}
		return r.applySettings(ctx)
	}
	r.tell("create the keyspaces")
	if err := r.create(ctx); errors.Is(err, errPublished) {
		return nil
	} else if err != nil {
		return err
	}
	r.tell("load the keyspaces")
	if err := r.load(ctx); err != nil {
		return err
	}
	if err := coordinating.fill(ctx); err != nil {
		return err
	}
	if err := r.applySettings(ctx); err != nil {
		return err
	}
	r.tell("publish the keyspaces")
	names := make(map[string]string)
	for _, name := range r.names {
		names[keys.HiddenName(r.backup.Id, name)] = name
	}
	return r.config.Core().Publish(ctx, r.backup.Id, names)
}

// undoRestore drops the keyspaces of a restore that were not published. It also empties the
// coordination store if the store was not filled completely.
func (m *Maker) undoRestore(ctx context.Context, b *clusterpb.Backup) error {
	if b.Restore.Coordination {
		if err := m.abandon(ctx, b); err != nil {
			return err
		}
	}
	core := m.config.Core()
	all, err := core.ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return err
	}
	for _, info := range all.GetKeyspaces() {
		name := info.GetKeyspace().GetName()
		if restore, _, ok := keys.SplitHiddenName(name); !ok || restore != b.Id ||
			info.GetKeyspace().GetState() == clusterpb.KeyspaceState_DROPPING {
			continue
		}
		if _, err := core.DropKeyspace(ctx,
			&clusterpb.DropKeyspaceRequest{Name: name}); status.Code(err) != codes.NotFound &&
			err != nil {
			return err
		}
	}
	return nil
}

package backups

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Create records a backup. Only the leader answers. If a backup with the same id exists, Create
// returns that backup if its request is the same, and refuses the call otherwise.
func (b *Backups) Create(
	ctx context.Context, r *clusterpb.CreateBackupRequest,
) (*clusterpb.CreateBackupResponse, error) {
	asked := r.GetBackup()
	if err := invalid(asked); err != nil {
		return nil, err
	}
	if b.config.Maker == nil {
		return nil, status.Error(codes.Unimplemented, "this cluster makes no backups")
	}
	if err := b.config.Maker.Check(asked); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	one := &clusterpb.Backup{Id: asked.Id, Target: asked.Target, Parent: asked.Parent,
		Include: asked.Include, Exclude: asked.Exclude, Recipients: asked.Recipients,
		BytesPerSecond: asked.BytesPerSecond, KeepMillis: asked.KeepMillis,
		BeganUnixMs: b.config.Now().UnixMilli()}
	if asked.Restore != nil {
		one.Restore = &clusterpb.Restore{Backup: asked.Restore.Backup, Names: asked.Restore.Names,
			Identities: asked.Restore.Identities, Coordination: asked.Restore.Coordination,
			Settings: asked.Restore.Settings, NoKeyspaces: asked.Restore.NoKeyspaces,
			At: asked.Restore.At, Newest: asked.Restore.Newest}
		if one.Restore.Backup == Latest || one.Restore.Backup == "" {
			if err := b.config.Maker.Resolve(ctx, one); err != nil {
				return nil, status.Error(codes.FailedPrecondition, err.Error())
			}
		}
	}
	if one.Parent == Latest {
		var err error
		if one.Parent, err = b.config.Maker.Latest(ctx, one); err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
	}
	if one.KeepMillis == 0 {
		one.KeepMillis = uint64(defaultKeep.Milliseconds())
	}
	if len(one.Recipients) > 0 {
		var err error
		if one.Identity, err = b.config.Maker.NewIdentity(); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	v, done, err := b.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	all, err := loadAll(v)
	if err != nil {
		return nil, b.meta.Status(err)
	}
	running := 0
	for _, r := range all {
		if r.Id == one.Id {
			if !same(r.Backup, one, asked) {
				return nil, status.Errorf(codes.AlreadyExists, "there is another backup %s", one.Id)
			}
			return &clusterpb.CreateBackupResponse{Backup: r.shown(b.progress(r.Id))}, nil
		}
		if !r.ended() {
			running++
		}
	}
	if running >= maxRunning {
		return nil, status.Errorf(codes.ResourceExhausted, "%d backups wait already, the limit is %d",
			running, maxRunning)
	}
	ops := append(forgotten(all), store.Put(key(one.Id), meta.Encode(one)))
	answer := &clusterpb.CreateBackupResponse{Backup: record{one, 1}.shown(nil)}
	meta.Answer(ctx, answer)
	ok, err := b.meta.Commit(ctx, []*storepb.Compare{store.Absent(key(one.Id))}, ops...)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict(what(one.Id))
	}
	b.config.Logger.Info("a backup was asked for", "backup", one.Id, "target", one.Target,
		"parent", one.Parent)
	b.poke()
	return answer, nil
}

// same reports whether two records belong to the same request. asked is the request as it came: it
// may ask for the newest backup, which may be another one by now.
func same(a, b, asked *clusterpb.Backup) bool {
	which := func(asked, a, b string) bool {
		return a == b || (asked == Latest || asked == "") && a != ""
	}
	return a.Target == b.Target && slices.Equal(a.Include, b.Include) &&
		slices.Equal(a.Exclude, b.Exclude) && slices.Equal(a.Recipients, b.Recipients) &&
		a.BytesPerSecond == b.BytesPerSecond && a.KeepMillis == b.KeepMillis &&
		which(asked.Parent, a.Parent, b.Parent) && (a.Restore == nil) == (b.Restore == nil) &&
		which(asked.Restore.GetBackup(), a.Restore.GetBackup(), b.Restore.GetBackup()) &&
		a.Restore.GetCoordination() == b.Restore.GetCoordination() &&
		a.Restore.GetSettings() == b.Restore.GetSettings() &&
		a.Restore.GetNoKeyspaces() == b.Restore.GetNoKeyspaces() &&
		(asked.Restore.GetNewest() || proto.Equal(a.Restore.GetAt(), b.Restore.GetAt())) &&
		slices.EqualFunc(a.Restore.GetNames(), b.Restore.GetNames(), func(a, b *clusterpb.Renaming) bool {
			return proto.Equal(a, b)
		})
}

// List lists the backups. Only the leader answers.
func (b *Backups) List(
	ctx context.Context, r *clusterpb.ListBackupsRequest,
) (*clusterpb.ListBackupsResponse, error) {
	v, err := b.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	all, err := loadAll(v)
	if err != nil {
		return nil, b.meta.Status(err)
	}
	answer := new(clusterpb.ListBackupsResponse)
	for _, one := range slices.Backward(all) {
		if r.GetId() == "" || r.Id == one.Id {
			answer.Backups = append(answer.Backups, one.shown(b.progress(one.Id)))
		}
	}
	if r.GetId() != "" && len(answer.Backups) == 0 {
		return nil, notFound(r.Id)
	}
	return answer, nil
}

func notFound(id string) error {
	return status.Errorf(codes.NotFound, "the core knows no backup %q: it keeps the last %d; "+
		"`tidemark backup list TARGET` lists what is in a target", id, keepEnded)
}

// Cancel ends a backup that is not complete. Only the leader answers.
func (b *Backups) Cancel(
	ctx context.Context, r *clusterpb.CancelBackupRequest,
) (*clusterpb.CancelBackupResponse, error) {
	for range attempts {
		v, err := b.meta.View(ctx)
		if err != nil {
			return nil, err
		}
		one, err := load(v, r.GetId())
		switch {
		case err != nil:
			return nil, b.meta.Status(err)
		case one.Backup == nil:
			return nil, notFound(r.GetId())
		case one.State == clusterpb.BackupState_BACKUP_COMPLETE:
			return nil, status.Errorf(codes.FailedPrecondition, "%s is complete: there is nothing to "+
				"cancel", one.Id)
		case one.State != clusterpb.BackupState_BACKUP_RUNNING &&
			one.State != clusterpb.BackupState_BACKUP_FAILED:
			return &clusterpb.CancelBackupResponse{Backup: one.shown(nil)}, nil
		}
		one.State, one.EndedUnixMs = clusterpb.BackupState_BACKUP_CANCELLING, 0
		ok, err := b.write(ctx, one)
		if err != nil {
			return nil, err
		}
		if ok {
			b.config.Logger.Info("a backup is to end", "backup", one.Id)
			b.stop(one.Id)
			b.poke()
			return &clusterpb.CancelBackupResponse{Backup: one.shown(nil)}, nil
		}
	}
	return nil, meta.Conflict(what(r.GetId()))
}

// write stores a changed record. It returns false if another call has changed the record.
func (b *Backups) write(ctx context.Context, r record) (bool, error) {
	return b.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(key(r.Id), r.revision)},
		store.Put(key(r.Id), meta.Encode(r.Backup)))
}

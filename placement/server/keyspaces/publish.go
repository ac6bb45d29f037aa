package keyspaces

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// maxHidden is the maximum length of a hidden keyspace's name.
const maxHidden = 256

// hidden is the key of the mark in a context.
type hidden struct{}

// Hidden returns the context of a call of Create for a keyspace whose name is a keys.HiddenName.
func Hidden(ctx context.Context) context.Context { return context.WithValue(ctx, hidden{}, true) }

// validName reports whether a keyspace can be created with a name.
func validName(ctx context.Context, name string) bool {
	if is, _ := ctx.Value(hidden{}).(bool); is {
		restore, last, ok := keys.SplitHiddenName(name)
		return ok && restore != "" && len(name) <= maxHidden && ValidName(last)
	}
	return ValidName(name)
}

// Publish renames keyspaces, all at once or none. names maps the present names, which were given to
// Create, to the new names. A keyspace that has its new name already, and no longer the present
// one, is skipped: an earlier call has published it. restore is the id of the restore that has loaded
// them: if it was cancelled, nothing is renamed. Only the leader answers.
func (k *Keyspaces) Publish(ctx context.Context, restore string, names map[string]string) error {
	v, done, err := k.meta.ViewInTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	var conditions []*storepb.Compare
	var ops []*storepb.Op
	for _, from := range slices.Sorted(maps.Keys(names)) {
		to := names[from]
		if !ValidName(to) {
			return status.Errorf(codes.InvalidArgument, "%q is not the name of a keyspace", to)
		}
		ks, err := k.meta.KeyspaceByName(v, from)
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		id, _, err := meta.LoadID(v, meta.NameKey(to))
		if err != nil {
			return k.meta.Status(err)
		}
		if id != 0 {
			return status.Errorf(codes.AlreadyExists, "keyspace %q exists", to)
		}
		conditions = append(conditions, store.ModifiedAt(meta.KeyspaceKey(ks.ID()), ks.Revision),
			store.Absent(meta.NameKey(to)))
		ks.Name = to
		ops = append(ops, store.Delete(meta.NameKey(from)),
			store.Put(meta.NameKey(to), meta.EncodeID(uint64(ks.ID()))),
			store.Put(meta.KeyspaceKey(ks.ID()), meta.Encode(ks.Keyspace)))
	}
	if len(ops) == 0 {
		return nil
	}
	record, key := new(clusterpb.Backup), []byte(meta.BackupPrefix+restore)
	revision, err := meta.Load(v, key, record)
	if err != nil {
		return k.meta.Status(err)
	}
	if revision == 0 || record.State != clusterpb.BackupState_BACKUP_RUNNING {
		return status.Errorf(codes.FailedPrecondition, "the restore %s was cancelled", restore)
	}
	conditions = append(conditions, store.ModifiedAt(key, revision))
	ok, err := k.meta.Commit(ctx, conditions, ops...)
	if err != nil {
		return err
	}
	if !ok {
		return meta.Conflict("keyspaces")
	}
	k.config.Logger.Info("keyspaces are published", "keyspaces", len(names))
	k.config.Poke()
	return nil
}

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
)

// maxHidden bounds the name of a hidden keyspace.
const maxHidden = 256

// hidden marks a context.
type hidden struct{}

// Hidden is the context of a call of Create for a keyspace with a name of keys.HiddenName.
func Hidden(ctx context.Context) context.Context { return context.WithValue(ctx, hidden{}, true) }

// validName says whether a keyspace can be created by a name.
func validName(ctx context.Context, name string) bool {
	if is, _ := ctx.Value(hidden{}).(bool); is {
		restore, last, ok := keys.SplitHiddenName(name)
		return ok && restore != "" && len(name) <= maxHidden && ValidName(last)
	}
	return ValidName(name)
}

// Publish gives keyspaces their names, all at once or none. names has the present names, with which
// Create was called, and those that follow. A keyspace that has its name already, and no longer the
// present one, is left: it was published by an earlier call. Only the leader does it.
func (k *Keyspaces) Publish(ctx context.Context, names map[string]string) error {
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

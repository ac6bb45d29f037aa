package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// CoordinationStore is a member's part of the coordination store, as a restore fills it.
type CoordinationStore struct {
	Store    *store.Store
	Services *etcdapi.Services
}

// A restore brings the coordination store in by an import (package imports), the id of which is
// made of the restore's. So a new leader finds out from the store how far it is: not begun, at some
// step, or done. Clients are not answered while the import is under way, and see all of it at its
// end.
//
// The steps are made in the order in which a restore can be given up best: it is looked whether the
// store is empty before anything is made; then keyspaces are filled; then users and roles come,
// with their rights for keyspaces, under the ids that these have here; then keys and leases, and
// with the last of them authentication is enabled if it was; then keyspaces get their names.

// importID is the id of the import of a restore.
func importID(restore string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(restore)) // it never fails
	return h.Sum64() | 1
}

// coordinating is what a restore does with the coordination store.
type coordinating struct {
	*restore
	id   uint64
	file *etcdfile.File
	// directory is removed at the end.
	directory string
}

// coordinate reads the coordination store of the backup, and sees that it can be brought in:
// errRestore if not. It is nil if the restore is not asked for it, or has brought it in. Close it.
func (r *restore) coordinate(ctx context.Context, c *catalog.Catalog) (*coordinating, error) {
	if !r.backup.Restore.Coordination {
		return nil, nil
	}
	if whole, _ := r.point.Coordination(); whole == nil {
		return nil, fmt.Errorf("%w: the backup %s has no coordination store", errRestore,
			r.backup.Restore.Backup)
	}
	here, err := r.config.CoordinationStore()
	if err != nil {
		return nil, err
	}
	state, err := here.Store.ImportState(ctx)
	if err != nil {
		return nil, err
	}
	o := &coordinating{restore: r, id: importID(r.backup.Id)}
	switch {
	case state.ID == o.id && state.Done:
		return nil, nil
	case state.ID != 0 && state.ID != o.id && !state.Done:
		return nil, fmt.Errorf("%w: the import of another coordination store is under way. Let it end, "+
			"or give it up with `tidemark coord import --abandon`", errRestore)
	}
	r.tell("read the coordination store")
	if err := o.open(ctx, c); err != nil {
		return nil, errors.Join(err, o.close())
	}
	if state.ID != o.id {
		if err := here.Services.MayImport(ctx, o.file.ImportedAuth()); err != nil {
			return nil, errors.Join(notEmpty(err), o.close())
		}
	}
	return o, nil
}

// open fetches the file of the backup.
func (o *coordinating) open(ctx context.Context, c *catalog.Catalog) (err error) {
	if o.directory, err = os.MkdirTemp(o.config.Directory, "restore-"); err != nil {
		return err
	}
	path, err := Coordination(ctx, c, o.point, o.directory)
	if err != nil {
		return err
	}
	o.file, err = etcdfile.Open(ctx, path, etcdfile.Options{WithoutSum: true})
	if errors.Is(err, etcdfile.ErrDamaged) {
		return fmt.Errorf("%w: the coordination store of the backup: %w", errRestore, err)
	}
	return err
}

// Coordination writes the coordination store as it was at a moment into a file below a directory, in
// the format of etcd's snapshots, and returns its path.
func Coordination(ctx context.Context, c *catalog.Catalog, p *manifest.Point,
	directory string) (path string, err error) {
	whole, changes := p.Coordination()
	path = filepath.Join(directory, "copy")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	err = c.Coordination(ctx, whole, func(part []byte) error {
		_, err := file.Write(part)
		return err
	})
	if err = errors.Join(err, file.Close()); err != nil || len(changes) == 0 {
		return path, err
	}
	later, err := etcdfile.Advance(ctx, directory, path, func(yield func(io.Reader, error) bool) {
		for _, blob := range changes {
			var set bytes.Buffer
			err := c.Coordination(ctx, blob, func(part []byte) error {
				_, err := set.Write(part)
				return err
			})
			if !yield(&set, err) || err != nil {
				return
			}
		}
	})
	if errors.Is(err, etcdfile.ErrHole) || errors.Is(err, etcdfile.ErrChanges) ||
		errors.Is(err, etcdfile.ErrDamaged) {
		err = fmt.Errorf("%w: the coordination store of the log: %w", errRestore, err)
	}
	return later, errors.Join(err, os.Remove(path))
}

// close removes the file. It may be called for nil.
func (o *coordinating) close() (err error) {
	if o == nil {
		return nil
	}
	if o.file != nil {
		err = o.file.Close()
	}
	return errors.Join(err, os.RemoveAll(o.directory))
}

// notEmpty makes a refusal that nothing but people can change an errRestore.
func notEmpty(err error) error {
	if status.Code(err) != codes.FailedPrecondition {
		return err
	}
	return fmt.Errorf("%w: the coordination store is filled only if it is empty: %s", errRestore,
		status.Convert(err).Message())
}

// fill brings the coordination store in, or goes on with that. It may be called for nil, and
// returns when clients are answered.
func (o *coordinating) fill(ctx context.Context) error {
	if o == nil {
		return nil
	}
	here, err := o.config.CoordinationStore()
	if err != nil {
		return err
	}
	now, err := here.Store.ImportState(ctx)
	if err != nil {
		return err
	}
	steps, state := o.file.Steps(o.id), &coordpb.ImportState{}
	steps.EnableAuth = o.file.Auth
	if now.ID == o.id {
		steps.Revision = now.Revision
		state = &coordpb.ImportState{Step: now.Step, Leases: now.Leases, LastLease: now.LastLease,
			Keys: now.Versions, LastKey: now.LastKey}
	} else {
		o.tell("bring users and roles in")
		steps.Revision = etcdfile.Raised(o.file.Revision, time.Now())
		if _, err := here.Services.Import.Auth(ctx, o.file.ImportedAuth()); err != nil {
			return notEmpty(err)
		}
		if err := o.grant(ctx, here.Store); err != nil {
			return err
		}
	}
	for state.Phase != coordpb.ImportState_DONE {
		o.tell(fmt.Sprintf("fill the coordination store: %d of %d keys", state.Keys, o.file.Len()))
		step, err := steps.Next(state)
		if err != nil {
			return err
		}
		if state, err = here.Services.Import.Step(ctx, step); err != nil {
			if step.Step == 1 {
				return notEmpty(err)
			}
			return err
		}
		if state.Id != step.Id || state.Step < step.Step {
			return fmt.Errorf("%w: the import of the coordination store was given up by another command",
				errRestore)
		}
	}
	return nil
}

// grant gives roles their rights for keyspaces, under the ids that keyspaces of the same names have
// here. It may be repeated.
func (o *coordinating) grant(ctx context.Context, s *store.Store) error {
	here, err := o.keyspacesHere(ctx)
	if err != nil {
		return err
	}
	lost := 0
	for _, role := range o.file.Roles {
		for _, p := range role.Keyspaces {
			id, ok := here[uint32(p.Keyspace)]
			if !ok {
				lost++
				continue
			}
			grant := &storepb.KeyspacePermission{Keyspace: uint64(id), Rights: p.Rights, Key: p.Key,
				RangeEnd: p.RangeEnd}
			if _, err := s.Execute(ctx, store.ChangeAuth(nil, &storepb.AuthChange{
				Change: &storepb.AuthChange_GrantKeyspace{GrantKeyspace: &storepb.KeyspaceGrant{
					Role: role.Name, Permission: grant}}})); err != nil {
				return fmt.Errorf("the rights of role %q: %w", role.Name, err)
			}
		}
	}
	if lost > 0 {
		o.config.Logger.Warn("rights for keyspaces that are not in this cluster are not restored",
			"restore", o.backup.Id, "rights", lost)
	}
	return nil
}

// keyspacesHere finds, for ids of keyspaces of the backup, their ids in this cluster: those that
// the restore has made, or else those of the same names.
func (o *coordinating) keyspacesHere(ctx context.Context) (map[uint32]uint32, error) {
	all, err := o.config.Core().ListKeyspaces(ctx, &clusterpb.ListKeyspacesRequest{})
	if err != nil {
		return nil, err
	}
	there := make(map[string]uint32)
	for _, info := range all.GetKeyspaces() {
		if info.GetKeyspace().GetState() != clusterpb.KeyspaceState_DROPPING {
			there[info.GetKeyspace().GetName()] = info.GetKeyspace().GetId()
		}
	}
	here := make(map[uint32]uint32)
	for _, ks := range o.point.Keyspaces {
		if id, ok := o.ids[ks.ID]; ok {
			here[ks.ID] = id
		} else if id, ok := there[ks.Name]; ok {
			here[ks.ID] = id
		}
	}
	return here, nil
}

// abandon gives the import of a restore up, if it is under way: the store is empty then, but for
// users and roles that have come before it. A store that is filled stays.
func (m *Maker) abandon(ctx context.Context, b *clusterpb.Backup) error {
	here, err := m.config.CoordinationStore()
	if err != nil {
		return err
	}
	state, err := here.Store.ImportState(ctx)
	if err != nil || state.ID != importID(b.Id) || state.Done {
		return err
	}
	_, err = here.Store.Execute(ctx, store.Import(&storepb.Import{Id: state.ID, Abandon: true}))
	return err
}

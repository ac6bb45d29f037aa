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

	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// A restore fills the coordination store by an import (package imports). The id of the import is
// derived from the restore's id. So a new leader learns from the store whether the import is not
// begun, at some step, or done. While the import is under way, clients get no answers. At its end
// they see all of the imported data.
//
// The order of the steps makes it cheap to abandon a restore. First it is checked that the store is
// empty, before anything is created. Then keyspaces are filled. Then users and roles are imported,
// with their rights for keyspaces, with the keyspaces' ids in this cluster. Then keys and leases
// are imported. The last of these steps enables authentication if it was enabled in the backup.
// Then keyspaces get their final names.

// importID returns the id of the import of a restore.
func importID(restore string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(restore)) // it never fails
	return h.Sum64() | 1
}

// coordinating is the part of a restore that fills the coordination store.
type coordinating struct {
	*restore
	id   uint64
	file *etcdfile.File
	// directory is removed at the end.
	directory string
}

// coordinate reads the coordination store of the backup, and checks that it can be imported. If
// not, it returns an errRestore. It returns nil if the restore does not include the store, or has
// imported it already. The caller closes the result.
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

// open reads the file from the backup.
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

// Coordination writes the coordination store as of a moment to a file below a directory, in the
// format of etcd's snapshots. It returns the path of the file.
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

// notEmpty converts a refusal that only an administrator can remedy to an errRestore.
func notEmpty(err error) error {
	if status.Code(err) != codes.FailedPrecondition {
		return err
	}
	return fmt.Errorf("%w: the coordination store is filled only if it is empty: %s", errRestore,
		status.Convert(err).Message())
}

// fill imports the coordination store, or continues the import. It may be called for nil. It
// returns when clients get answers.
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

// grant gives roles their rights for keyspaces, with the ids that keyspaces of the same names have
// in this cluster. It may be repeated.
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

// keyspacesHere maps ids of keyspaces in the backup to their ids in this cluster. These are
// keyspaces that the restore has created, or else keyspaces of the same names.
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

// abandon abandons the import of a restore, if it is under way. Afterwards the store is empty,
// except for users and roles that were imported earlier. A completely filled store stays.
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

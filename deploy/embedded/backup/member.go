package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Member is this server's member of the core, in the form that a Maker needs.
type Member struct {
	// Server returns the member. It returns nil while the server is no member. It is called for each
	// use.
	Server func() *server.Server
	// Coordination returns the member's part of the coordination store. It returns nil while the part
	// is not open. None is set if the cluster has no coordination store.
	Coordination func() *store.Store
	None         bool
	// Services returns the services of the coordination store. It returns nil while the store is not
	// open.
	Services func() *etcdapi.Services
	// Directory is the directory for the copy of the coordination store. If it is empty, a temporary
	// directory is used.
	Directory string
}

// export returns this member's state of the coordination store, once it has applied all that was
// acknowledged before. The caller closes it.
func (m *Member) export(ctx context.Context) (*store.Export, error) {
	if m.None {
		return nil, job.ErrNone
	}
	s := m.Coordination()
	if s == nil {
		return nil, errClosed
	}
	if err := s.Confirm(ctx); err != nil {
		return nil, err
	}
	return s.Export()
}

// state returns the coordination store's state for a backup (MakerConfig.Coordination).
func (m *Member) state(ctx context.Context) (job.Coordination, error) {
	e, err := m.export(ctx)
	if errors.Is(err, job.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &coordinationState{export: e, directory: m.Directory}, nil
}

// coordinationStore returns the store for restores (MakerConfig.CoordinationStore).
func (m *Member) coordinationStore() (CoordinationStore, error) {
	if m.None {
		return CoordinationStore{}, fmt.Errorf("%w: %w", errRestore, job.ErrNone)
	}
	here := CoordinationStore{Store: m.Coordination(), Services: m.Services()}
	if here.Store == nil || here.Services == nil {
		return CoordinationStore{}, errClosed
	}
	return here, nil
}

// errClosed: the store is not open yet.
var errClosed = errors.New("the coordination store is not open yet")

// leader implements Core for the core's leader on this server.
type leader struct{ *server.Server }

// SetConsumer implements Core.
func (l leader) SetConsumer(ctx context.Context,
	r *clusterpb.SetConsumerRequest) (*clusterpb.SetConsumerResponse, error) {
	return l.Consumers().Set(ctx, r)
}

// DeleteConsumer implements Core.
func (l leader) DeleteConsumer(ctx context.Context,
	r *clusterpb.DeleteConsumerRequest) (*clusterpb.DeleteConsumerResponse, error) {
	return l.Consumers().Delete(ctx, r)
}

// CreateKeyspace implements Core.
func (l leader) CreateKeyspace(ctx context.Context,
	r *clusterpb.CreateKeyspaceRequest) (*clusterpb.CreateKeyspaceResponse, error) {
	return l.Keyspaces().Create(ctx, r)
}

// DropKeyspace implements Core.
func (l leader) DropKeyspace(ctx context.Context,
	r *clusterpb.DropKeyspaceRequest) (*clusterpb.DropKeyspaceResponse, error) {
	return l.Keyspaces().Drop(ctx, r)
}

// Publish implements Core.
func (l leader) Publish(ctx context.Context, restore string, names map[string]string) error {
	return l.Keyspaces().Publish(ctx, restore, names)
}

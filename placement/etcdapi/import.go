package etcdapi

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/users"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// importServer imports the state of another store. etcd has no service for this: there a snapshot
// is restored before the servers start.
type importServer struct {
	coordpb.UnimplementedImportServer
	users *users.Server
	kv    *kvServer
	*shared
}

// State implements coordpb.ImportServer.
func (s *importServer) State(
	ctx context.Context, _ *coordpb.ImportStateRequest,
) (*coordpb.ImportState, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	return s.current(ctx)
}

func (s *importServer) current(ctx context.Context) (*coordpb.ImportState, error) {
	limited, cancel := context.WithTimeout(ctx, backend.RequestTimeout)
	defer cancel()
	state, err := s.Store.ImportState(limited)
	if err != nil {
		return nil, s.ReadError(ctx, err)
	}
	return importState(state), nil
}

func importState(state store.ImportState) *coordpb.ImportState {
	phase := coordpb.ImportState_UNDER_WAY
	switch {
	case state.ID == 0:
		phase = coordpb.ImportState_NONE
	case state.Done:
		phase = coordpb.ImportState_DONE
	}
	return &coordpb.ImportState{Phase: phase, Id: state.ID, Source: state.Source, Step: state.Step,
		Revision: state.Revision, Leases: state.Leases, LastLease: state.LastLease,
		Keys: state.Versions, LastKey: state.LastKey}
}

// Step implements coordpb.ImportServer.
func (s *importServer) Step(
	ctx context.Context, r *coordpb.ImportStep,
) (*coordpb.ImportState, error) {
	step := &storepb.Import{Id: r.Id, Step: r.Step, Revision: r.Revision, Source: r.Source,
		End: r.End}
	if r.EnableAuth {
		step.Enable = users.NewKey()
	}
	for _, l := range r.Leases {
		step.Leases = append(step.Leases, &storepb.ImportedLease{Id: l.GetId(),
			TtlMillis: l.GetTtlMillis(), LeftMillis: l.GetLeftMillis()})
	}
	for _, k := range r.Keys {
		step.Versions = append(step.Versions, &storepb.ImportedVersion{Key: k.GetKey(),
			CreateRevision: k.GetCreateRevision(), ModRevision: k.GetModRevision(),
			Version: k.GetVersion(), Value: k.GetValue(), Lease: k.GetLease(), Number: k.GetNumber()})
	}
	err := error(nil)
	if r.EnableAuth {
		err = s.users.Enabling(ctx, func() error { return s.do(ctx, step) })
	} else {
		err = s.do(ctx, step)
	}
	if err != nil {
		return nil, err
	}
	state, err := s.current(ctx)
	if status.Code(err) == codes.Unavailable {
		return nil, rpctypes.ErrGRPCTimeout // the step is done, and "no leader" would say that it is not
	}
	return state, err
}

// Abandon implements coordpb.ImportServer.
func (s *importServer) Abandon(
	ctx context.Context, r *coordpb.AbandonImportRequest,
) (*coordpb.AbandonImportResponse, error) {
	if err := s.do(ctx, &storepb.Import{Id: r.Id, Abandon: true}); err != nil {
		return nil, err
	}
	return &coordpb.AbandonImportResponse{}, nil
}

// do takes a step for an administrator. Its refusals do not concern etcd's clients, so they have
// codes of their own.
func (s *importServer) do(ctx context.Context, step *storepb.Import) error {
	if _, err := s.Administer(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, backend.RequestTimeout)
	defer cancel()
	_, err := s.Store.Execute(limited, store.Import(step))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrImporting), errors.Is(err, store.ErrNotEmpty),
		errors.Is(err, store.ErrLeaseNotFound):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, store.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return translate.Error(ctx, err)
}

package coordination

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Parts returns the stores of a server's member of the core: its own store, and its part of the
// coordination store. They are nil while the server has no such member, or has not opened its part.
// Parts returns an error, a status, if the server belongs to another cluster than the given one.
type Parts func(cluster uint64) (core, part *store.Store, err error)

// Service does the work of a coordination store's leader for the other members.
type Service struct {
	clusterpb.UnimplementedCoordinationServer
	parts Parts
}

// NewService makes the service of a server.
func NewService(parts Parts) *Service {
	return &Service{parts: parts}
}

// part returns the store that a call is for. A server without a part does not lead the coordination
// store.
func (s *Service) part(cluster uint64) (*store.Store, error) {
	_, part, err := s.parts(cluster)
	if err == nil && part == nil {
		err = doesNotLead(&store.NotLeaderError{})
	}
	return part, err
}

// doesNotLead returns the error of a member that does not lead, and has done nothing.
func doesNotLead(e *store.NotLeaderError) error {
	st, err := status.New(codes.FailedPrecondition, e.Error()).
		WithDetails(&clusterpb.CoordinationLeader{Replica: uint64(e.Leader), Term: e.Term})
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return st.Err()
}

// coordinationStatus converts an error of the store to a status.
func coordinationStatus(err error) error {
	notLeader := (*store.NotLeaderError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &notLeader):
		return doesNotLead(notLeader)
	case errors.Is(err, store.ErrLeaseNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Unavailable, err.Error())
}

// Execute implements clusterpb.CoordinationServer.
func (s *Service) Execute(
	ctx context.Context, r *clusterpb.CoordinationExecuteRequest,
) (*clusterpb.CoordinationExecuteResponse, error) {
	part, err := s.part(r.Cluster)
	if err != nil {
		return nil, err
	}
	result, err := part.ServeExecute(ctx, r.Term, r.Command)
	if err != nil {
		return nil, coordinationStatus(err)
	}
	return &clusterpb.CoordinationExecuteResponse{Result: result}, nil
}

// Index implements clusterpb.CoordinationServer.
func (s *Service) Index(
	ctx context.Context, r *clusterpb.CoordinationIndexRequest,
) (*clusterpb.CoordinationIndexResponse, error) {
	part, err := s.part(r.Cluster)
	if err != nil {
		return nil, err
	}
	index, err := part.ServeIndex(ctx)
	if err != nil {
		return nil, coordinationStatus(err)
	}
	return &clusterpb.CoordinationIndexResponse{Index: index}, nil
}

// Renew implements clusterpb.CoordinationServer.
func (s *Service) Renew(
	ctx context.Context, r *clusterpb.CoordinationLeaseRequest,
) (*clusterpb.CoordinationLeaseResponse, error) {
	part, err := s.part(r.Cluster)
	if err != nil {
		return nil, err
	}
	term, err := part.KeepAlive(ctx, r.Lease)
	if err != nil {
		return nil, coordinationStatus(err)
	}
	return &clusterpb.CoordinationLeaseResponse{Nanoseconds: int64(term)}, nil
}

// RenewAll implements clusterpb.CoordinationServer.
func (s *Service) RenewAll(
	ctx context.Context, r *clusterpb.CoordinationRenewAllRequest,
) (*clusterpb.CoordinationRenewAllResponse, error) {
	part, err := s.part(r.Cluster)
	if err != nil {
		return nil, err
	}
	terms, err := part.KeepAliveAll(ctx, r.Leases)
	if err != nil {
		return nil, coordinationStatus(err)
	}
	response := &clusterpb.CoordinationRenewAllResponse{Nanoseconds: make([]int64, len(terms))}
	for i, term := range terms {
		response.Nanoseconds[i] = int64(term)
	}
	return response, nil
}

// TimeToLive implements clusterpb.CoordinationServer.
func (s *Service) TimeToLive(
	ctx context.Context, r *clusterpb.CoordinationLeaseRequest,
) (*clusterpb.CoordinationLeaseResponse, error) {
	part, err := s.part(r.Cluster)
	if err != nil {
		return nil, err
	}
	left, err := part.ServeTimeToLive(ctx, r.Lease)
	if err != nil {
		return nil, coordinationStatus(err)
	}
	return &clusterpb.CoordinationLeaseResponse{Nanoseconds: int64(left)}, nil
}

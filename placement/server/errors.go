package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// refused is how a member that does not lead answers.
func (s *Server) refused(leader keys.ReplicaID) error {
	address := s.address(leader)
	text := "this member does not lead the core, and no leader is known"
	if address != "" {
		text = "this member does not lead the core; " + address + " does"
	}
	return hint.Error(codes.FailedPrecondition, text,
		&clusterpb.CoreHint{Leader: address, Members: s.current()})
}

// toStatus gives an error of the store its code.
func (s *Server) toStatus(err error) error {
	var not *store.NotLeaderError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &not):
		return s.refused(not.Leader)
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, store.ErrTooLarge):
		// It will be no smaller the next time.
		return status.Error(codes.InvalidArgument, "the core: "+err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	// Everything else is the core's momentary state, and it is safe to ask again: see the package's
	// comment on tokens.
	return hint.Unavailable("the core: %v", err)
}

package meta

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/outcome"
)

// Refused returns the answer of a member that does not lead.
func (r *Records) Refused(leader keys.ReplicaID) error {
	address := r.Address(leader)
	text := "this member does not lead the core, and no leader is known"
	if address != "" {
		text = "this member does not lead the core; " + address + " does"
	}
	return hint.Error(codes.FailedPrecondition, text,
		&clusterpb.CoreHint{Leader: address, Members: r.CoreMembers()})
}

// Status converts an error of the store to a status.
func (r *Records) Status(err error) error {
	var not *store.NotLeaderError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &not):
		return r.Refused(not.Leader)
	case errors.Is(err, store.ErrOutcomeUnknown):
		code := codes.Unavailable
		switch {
		case errors.Is(err, context.Canceled):
			code = codes.Canceled
		case errors.Is(err, context.DeadlineExceeded):
			code = codes.DeadlineExceeded
		}
		return outcome.Unknown(code, "the core: "+err.Error(), &clusterpb.CoreHint{})
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, store.ErrTooLarge):
		// A retry would not make the command smaller.
		return status.Error(codes.InvalidArgument, "the core: "+err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	// Every other error comes from a temporary state of the core, and nothing was done.
	return hint.Unavailable("the core: %v", err)
}

func UnknownKeyspace(name string) error {
	return status.Errorf(codes.NotFound,
		"there is no keyspace %s; `tidemark keyspace list` shows those there are",
		keys.Pretty([]byte(name)))
}

// Conflict returns an error which says that a record changed between reading and writing. A retry
// is safe.
func Conflict(what string) error {
	return hint.Unavailable("the core's record of %s changed meanwhile; try again", what)
}

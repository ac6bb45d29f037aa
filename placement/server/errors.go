package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	return hinted(codes.FailedPrecondition, text,
		&clusterpb.CoreHint{Leader: address, Members: s.current()})
}

// withHint is an error that a member of the core has given itself: the hint tells it from one that
// the network made.
func withHint(code codes.Code, text, leader string) error {
	return hinted(code, text, &clusterpb.CoreHint{Leader: leader})
}

func hinted(code codes.Code, text string, hint *clusterpb.CoreHint) error {
	st, err := status.New(code, text).WithDetails(hint)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return st.Err()
}

// hintOf finds the hint in an error. refused says that the member does not lead; otherwise it has
// troubles of its own.
func hintOf(err error) (leader string, refused, ok bool) {
	st, isStatus := status.FromError(err)
	if !isStatus {
		return "", false, false
	}
	for _, detail := range st.Details() {
		if hint, is := detail.(*clusterpb.CoreHint); is {
			return hint.Leader, st.Code() == codes.FailedPrecondition, true
		}
	}
	return "", false, false
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
	return withHint(codes.Unavailable, fmt.Sprintf("the core: %v", err), "")
}

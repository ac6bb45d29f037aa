package membership

import (
	"context"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// refuseCore refuses a change of the core's members, with a machine-readable reason.
func refuseCore(reason clusterpb.CoreRefusal_Reason, format string, args ...any) error {
	code := codes.FailedPrecondition
	if reason == clusterpb.CoreRefusal_NOT_FOUND {
		code = codes.NotFound
	}
	st := status.Newf(code, format, args...)
	if with, err := st.WithDetails(&clusterpb.CoreRefusal{Reason: reason}); err == nil {
		st = with
	}
	return st.Err()
}

// RefusalOf returns the reason why a change of the core's members was refused, from an error of
// ChangeCore. It returns OTHER if the error has no reason.
func RefusalOf(err error) clusterpb.CoreRefusal_Reason {
	for _, detail := range status.Convert(err).Details() {
		if r, ok := detail.(*clusterpb.CoreRefusal); ok {
			return r.Reason
		}
	}
	return clusterpb.CoreRefusal_OTHER
}

func unknownMember(name string, members *storepb.Members) error {
	return refuseCore(clusterpb.CoreRefusal_NOT_FOUND,
		"%s is not a member of the core; the members are %s", name, roster.List(members))
}

// soundChange returns an error if a request is not valid, whatever the members are.
func soundChange(r *clusterpb.ChangeCoreRequest) error {
	switch {
	case r.Add == "" && r.Remove == "" && r.Learner == "" && r.Move == "":
		return status.Error(codes.InvalidArgument, "say which server is to be added to the core, "+
			"or which member is to be removed")
	case r.Learner != "" && (r.Add != "" || r.Remove != "" || r.Move != ""),
		r.Move != "" && (r.Add != "" || r.Remove != ""):
		return status.Error(codes.InvalidArgument, "a member without a vote is added, and the address "+
			"of one is changed, by a request of its own")
	}
	if r.Move != "" {
		if _, _, err := net.SplitHostPort(r.MoveTo); err != nil {
			return status.Errorf(codes.InvalidArgument, "%q is no address of a server: %v", r.MoveTo, err)
		}
	}
	return nil
}

// moveMember records another address of a member, before the member's server announces itself from
// there. The server's announcement replaces the recorded address by the server's own.
func (s *Membership) moveMember(
	ctx context.Context, r *clusterpb.ChangeCoreRequest,
) (*clusterpb.ChangeCoreResponse, error) {
	// If two members are moved to one address at the same time, they take turns.
	_, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	members := s.store.Members()
	m := roster.Find(members, r.Move, 0)
	if m == nil {
		return nil, unknownMember(r.Move, members)
	}
	if m.Address == r.MoveTo {
		return &clusterpb.ChangeCoreResponse{}, nil
	}
	if other := roster.Where(members, func(x *storepb.Member) bool {
		return x.Address == r.MoveTo
	}); other != nil {
		return nil, refuseCore(clusterpb.CoreRefusal_ADDRESS_TAKEN, "member %d of the core is at %s",
			other.Replica, r.MoveTo)
	}
	return &clusterpb.ChangeCoreResponse{}, s.recordMove(ctx, m.Replica,
		&clusterpb.AnnounceRequest{Server: m.Server, Address: r.MoveTo})
}

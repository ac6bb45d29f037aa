package etcdapi

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// renewalsServer renews many leases with one call, like LeaseKeepAlive.
type renewalsServer struct {
	coordpb.UnimplementedRenewalsServer
	*leaseServer
}

// RenewAll implements coordpb.RenewalsServer. Its answer is what a stream of LeaseKeepAlive would
// have answered before it ended.
func (s *renewalsServer) RenewAll(
	ctx context.Context, r *coordpb.RenewAllRequest,
) (*coordpb.RenewAllResponse, error) {
	switch n := len(r.Leases); {
	case n == 0:
		return &coordpb.RenewAllResponse{}, nil
	case n > coordpb.MaxRenewed:
		return nil, status.Errorf(codes.InvalidArgument,
			"%d leases are to be renewed: a call renews at most %d", n, coordpb.MaxRenewed)
	}
	// The header is from before the renewal, as in LeaseKeepAlive.
	header := s.Header(0)
	terms, refused := s.renew(ctx, r.Leases)
	if len(terms) == 0 && refused != nil {
		return nil, refused
	}
	answer := &coordpb.RenewAllResponse{Terms: make([]int64, len(terms)),
		Header: &coordpb.RenewalHeader{ClusterId: header.ClusterId, MemberId: header.MemberId,
			Revision: header.Revision, RaftTerm: header.RaftTerm}}
	for i, term := range terms {
		answer.Terms[i] = int64(term / time.Second)
	}
	if refused != nil {
		why := status.Convert(refused)
		answer.Refusal = &coordpb.RenewalRefusal{Code: int32(why.Code()), Message: why.Message()}
		s.AuditPart(ctx, r, refused) // the guard sees no error of the call
	}
	return answer, nil
}

package etcdapi

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// clockServer returns the time according to the clocks of the members.
type clockServer struct {
	coordpb.UnimplementedClockServer
	*shared
}

// Read implements coordpb.ClockServer. Anybody may call it: the time is no secret.
func (s *clockServer) Read(
	context.Context, *coordpb.ReadClockRequest,
) (*coordpb.ReadClockResponse, error) {
	clocks, members := s.Cluster.Clocks()
	earliest, latest, ok := byMajority(clocks, members)
	if !ok {
		return nil, status.Errorf(codes.Unavailable, "etcdserver: this member has heard %d of %d "+
			"clocks lately, which is no majority", len(clocks), members)
	}
	return &coordpb.ReadClockResponse{Earliest: uint64(max(0, earliest)),
		Latest: uint64(max(0, latest))}, nil
}

// byMajority returns the highest time that a majority of the members have reached by their clocks,
// and the lowest time that a majority have not passed. clocks are the clocks of the members that
// were heard; byMajority sorts them. ok is false if they are no majority.
//
// If the clocks of a majority are right, and all other clocks are wrong or unknown, true time is
// between the two, except for the delay of the pings that brought the clocks.
func byMajority(clocks []int64, members int) (earliest, latest int64, ok bool) {
	majority := members/2 + 1
	if len(clocks) < majority {
		return 0, 0, false
	}
	slices.Sort(clocks)
	return clocks[len(clocks)-majority], clocks[majority-1], true
}

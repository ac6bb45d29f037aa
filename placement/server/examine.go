package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

// These are the times that a member of the core may take over a forwarded call: linksTime to measure
// its links, and collectTime in addition to the seconds of a measurement.
const (
	linksTime   = 15 * time.Second
	collectTime = 10 * time.Second
)

// Examiner examines servers and collects data from them: from this server, or from another that the
// request names. It does not check the caller's rights.
type Examiner interface {
	AskExamine(context.Context, *diagnosispb.ExamineRequest) (*diagnosispb.Examination, error)
	AskCollect(context.Context, *diagnosispb.CollectRequest) (*diagnosispb.CollectResponse, error)
}

// Examine implements clusterpb.ClusterServer. A server that has checked the caller's rights
// answers, even if the core has no leader: examinations are needed most when something is wrong.
func (s *ClusterService) Examine(
	ctx context.Context, r *diagnosispb.ExamineRequest,
) (*diagnosispb.Examination, error) {
	if len(r.GetOthers()) > 0 {
		ctx = coreclient.Patient(ctx, linksTime)
	}
	return anywhere(ctx, s, r, Examiner.AskExamine, clusterpb.ClusterClient.Examine)
}

// Collect implements clusterpb.ClusterServer.
func (s *ClusterService) Collect(
	ctx context.Context, r *diagnosispb.CollectRequest,
) (*diagnosispb.CollectResponse, error) {
	if r.GetItem() == diagnosispb.Item_PROCESSOR {
		ctx = coreclient.Patient(ctx, time.Duration(min(r.GetSeconds(), 60))*time.Second+collectTime)
	}
	return anywhere(ctx, s, r, Examiner.AskCollect, clusterpb.ClusterClient.Collect)
}

// anywhere does a call on this server. If the caller's rights must be checked elsewhere, it
// forwards the call to a member of the core.
func anywhere[Request, Response any](ctx context.Context, s *ClusterService, r Request,
	here func(Examiner, context.Context, Request) (Response, error),
	there func(clusterpb.ClusterClient, context.Context, Request,
		...grpc.CallOption) (Response, error),
) (Response, error) {
	var none Response
	switch {
	case s.config.Examiner == nil:
		return none, status.Error(codes.Unimplemented, "this server examines no servers")
	case ctx.Value(passOn{}) == nil:
		return here(s.config.Examiner, ctx, r)
	case coreclient.IsForwarded(ctx):
		return none, coreclient.ErrNoMember
	}
	return there(s.config.Client.ClusterClient, ctx, r)
}

package embedded

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

var errNoMember = status.Error(codes.Unavailable, "this server is not a member of the core at "+
	"present: it is starting, or was removed, or offers itself")

// coreService implements the service Core. A server answers as soon as it starts. It has no member
// of the core until the core is formed or the server is added.
type coreService struct {
	clusterpb.UnimplementedCoreServer
	member *coreMember
	node   *dataNode
}

func (c *coreService) RegisterNode(ctx context.Context,
	r *clusterpb.RegisterNodeRequest) (*clusterpb.RegisterNodeResponse, error) {
	if s := c.member.server(); s != nil {
		return s.RegisterNode(ctx, r)
	}
	return nil, errNoMember
}

func (c *coreService) Heartbeat(ctx context.Context,
	r *clusterpb.HeartbeatRequest) (*clusterpb.HeartbeatResponse, error) {
	if s := c.member.server(); s != nil {
		return s.Heartbeat(ctx, r)
	}
	return nil, errNoMember
}

func (c *coreService) Announce(ctx context.Context,
	r *clusterpb.AnnounceRequest) (*clusterpb.AnnounceResponse, error) {
	if s := c.member.server(); s != nil {
		return s.Announce(ctx, r)
	}
	return nil, errNoMember
}

// Inform implements the service. Any server answers.
func (c *coreService) Inform(_ context.Context,
	m *clusterpb.CoreMembers) (*clusterpb.InformResponse, error) {
	c.member.core.Learn(m)
	return &clusterpb.InformResponse{}, nil
}

// Wake makes the node send a heartbeat soon, if the request names this node. Any server answers.
func (c *coreService) Wake(_ context.Context,
	r *clusterpb.WakeRequest) (*clusterpb.WakeResponse, error) {
	if n := c.node.node(); n != nil && r.GetCluster() == c.member.cluster.Load() &&
		r.GetNode() == uint64(n.ID()) {
		n.Wake()
	}
	return &clusterpb.WakeResponse{}, nil
}

func (c *coreService) WatchMetadata(r *clusterpb.WatchMetadataRequest,
	stream grpc.ServerStreamingServer[clusterpb.TableUpdate]) error {
	if s := c.member.server(); s != nil {
		return s.WatchMetadata(r, stream)
	}
	return errNoMember
}

func (c *coreService) Check(ctx context.Context,
	r *clusterpb.CheckRequest) (*clusterpb.MemberHealth, error) {
	if s := c.member.server(); s != nil {
		return s.Check(ctx, r)
	}
	return nil, errNoMember
}

func (c *coreService) Guarding(ctx context.Context,
	r *clusterpb.GuardingRequest) (*clusterpb.GuardingResponse, error) {
	if s := c.member.server(); s != nil {
		return s.Guarding(ctx, r)
	}
	return nil, errNoMember
}

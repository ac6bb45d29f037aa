package etcdapi

import (
	"context"
	"net"
	"net/url"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
)

type clusterServer struct {
	pb.UnimplementedClusterServer
	*shared
}

// memberHeader returns the header of all answers of this service: without a revision, as in etcd.
func (s *clusterServer) memberHeader() *pb.ResponseHeader { return s.Fill(&pb.ResponseHeader{}) }

func fromMembers(members []backend.Member) []*pb.Member {
	all := make([]*pb.Member, len(members))
	for i, m := range members {
		all[i] = &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs,
			IsLearner: m.Learner}
	}
	return all
}

// MemberList implements etcdserverpb.ClusterServer.
func (s *clusterServer) MemberList(
	ctx context.Context, r *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	if r.Linearizable {
		if err := s.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	if _, err := s.Identified(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, backend.RequestTimeout)
	defer cancel()
	members, err := s.Cluster.Members(limited, r.Linearizable)
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	return &pb.MemberListResponse{Header: s.memberHeader(), Members: fromMembers(members)}, nil
}

// administered refuses all clients but administrators. It returns the context for a call to another
// member on the client's behalf, which names the client's user.
func (s *clusterServer) administered(ctx context.Context) (context.Context, error) {
	who, err := s.Administer(ctx)
	if err != nil {
		return nil, err
	}
	if token := s.TokenFor(ctx, who); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
	}
	return ctx, nil
}

// MemberAdd implements etcdserverpb.ClusterServer.
func (s *clusterServer) MemberAdd(
	ctx context.Context, r *pb.MemberAddRequest,
) (*pb.MemberAddResponse, error) {
	if !soundURLs(r.PeerURLs) {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	ctx, err := s.administered(ctx)
	if err != nil {
		return nil, err
	}
	added, members, err := s.Cluster.Add(ctx, slices.Sorted(slices.Values(r.PeerURLs)), r.IsLearner)
	if err != nil {
		return nil, translate.ChangeError(ctx, err)
	}
	return &pb.MemberAddResponse{Header: s.memberHeader(),
		Member: fromMembers([]backend.Member{added})[0], Members: fromMembers(members)}, nil
}

// soundURLs reports whether etcd would accept these URLs: at least one, each with a scheme and a
// port, and without a path.
func soundURLs(urls []string) bool {
	for _, u := range urls {
		parsed, err := url.Parse(u)
		if err != nil {
			return false
		}
		switch parsed.Scheme {
		case "http", "https":
			if _, _, err := net.SplitHostPort(parsed.Host); err != nil || parsed.Path != "" {
				return false
			}
		case "unix", "unixs":
		default:
			return false
		}
	}
	return len(urls) > 0
}

// MemberRemove implements etcdserverpb.ClusterServer.
func (s *clusterServer) MemberRemove(
	ctx context.Context, r *pb.MemberRemoveRequest,
) (*pb.MemberRemoveResponse, error) {
	ctx, err := s.administered(ctx)
	if err != nil {
		return nil, err
	}
	members, err := s.Cluster.Remove(ctx, r.ID)
	if err != nil {
		return nil, translate.ChangeError(ctx, err)
	}
	return &pb.MemberRemoveResponse{Header: s.memberHeader(), Members: fromMembers(members)}, nil
}

// MemberUpdate implements etcdserverpb.ClusterServer.
func (s *clusterServer) MemberUpdate(
	ctx context.Context, r *pb.MemberUpdateRequest,
) (*pb.MemberUpdateResponse, error) {
	ctx, err := s.administered(ctx)
	if err != nil {
		return nil, err
	}
	members, err := s.Cluster.Update(ctx, r.ID, slices.Sorted(slices.Values(r.PeerURLs)))
	if err != nil {
		return nil, translate.ChangeError(ctx, err)
	}
	return &pb.MemberUpdateResponse{Header: s.memberHeader(), Members: fromMembers(members)}, nil
}

// MemberPromote implements etcdserverpb.ClusterServer.
func (s *clusterServer) MemberPromote(
	ctx context.Context, r *pb.MemberPromoteRequest,
) (*pb.MemberPromoteResponse, error) {
	ctx, err := s.administered(ctx)
	if err != nil {
		return nil, err
	}
	members, err := s.Cluster.Promote(ctx, r.ID)
	if err != nil {
		return nil, translate.ChangeError(ctx, err)
	}
	return &pb.MemberPromoteResponse{Header: s.memberHeader(), Members: fromMembers(members)}, nil
}

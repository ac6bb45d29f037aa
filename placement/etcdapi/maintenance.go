package etcdapi

import (
	"context"
	"math"
	"regexp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
)

type maintenanceServer struct {
	pb.UnimplementedMaintenanceServer
	*shared
	snapshots snapshots
}

// leastSize is the reported size of an empty store. etcd's size is never 0, and clients divide by
// it.
const leastSize = 4 << 10

// Status implements etcdserverpb.MaintenanceServer.
func (s *maintenanceServer) Status(
	ctx context.Context, _ *pb.StatusRequest,
) (*pb.StatusResponse, error) {
	if _, err := s.Identified(ctx); err != nil {
		return nil, err
	}
	disk, err := s.Store.DiskBytes()
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	// The size in use is what the quota counts. It may still be in memory, or compressed on disk;
	// Defragment frees the rest of the size.
	used := max(s.Store.Bytes(), leastSize)
	size := max(disk, used)
	quota := int64(math.MaxInt64) // there is no quota
	if s.Quota > 0 {
		quota = s.Quota
	}
	l, _ := s.Store.Leadership()
	index := s.Store.AppliedIndex()
	response := &pb.StatusResponse{
		Header: s.Header(0), Version: Version, StorageVersion: minorVersion + ".0",
		DbSize: int64(size), DbSizeInUse: int64(used), DbSizeQuota: quota,
		RaftIndex: index, RaftAppliedIndex: index, RaftTerm: l.Term,
		IsLearner: s.Cluster.Learner(), DowngradeInfo: &pb.DowngradeInfo{},
	}
	if l.Leader == 0 {
		response.Errors = append(response.Errors, rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader))
	} else {
		response.Leader = s.Cluster.MemberOf(l.Leader)
	}
	response.Errors = append(response.Errors, s.alarmTexts()...)
	return response, nil
}

// Defragment implements etcdserverpb.MaintenanceServer: it frees this member's disk space of what
// was deleted and compacted. Reads and writes go on meanwhile. Other members are not involved.
func (s *maintenanceServer) Defragment(
	ctx context.Context, _ *pb.DefragmentRequest,
) (*pb.DefragmentResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	if err := s.Cluster.GiveBack(ctx); err != nil {
		return nil, translate.Error(ctx, err)
	}
	return &pb.DefragmentResponse{}, nil
}

// Hash implements etcdserverpb.MaintenanceServer.
func (s *maintenanceServer) Hash(
	ctx context.Context, _ *pb.HashRequest,
) (*pb.HashResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	sum, revision, err := s.Store.HashAll(ctx)
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	return &pb.HashResponse{Header: s.Header(revision), Hash: sum}, nil
}

// HashKV implements etcdserverpb.MaintenanceServer. The sum differs from etcd's: it compares
// members of this database with each other.
func (s *maintenanceServer) HashKV(
	ctx context.Context, r *pb.HashKVRequest,
) (*pb.HashKVResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	h, err := s.Store.Hash(ctx, uint64(max(r.Revision, 0)))
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	response := &pb.HashKVResponse{Header: s.Header(h.Newest), Hash: h.Sum,
		CompactRevision: int64(h.Compacted), HashRevision: int64(h.Revision)}
	if h.Compacted == 0 {
		response.CompactRevision = -1 // as etcd for a store that was never compacted
	}
	return response, nil
}

// MoveLeader implements etcdserverpb.MaintenanceServer.
func (s *maintenanceServer) MoveLeader(
	ctx context.Context, r *pb.MoveLeaderRequest,
) (*pb.MoveLeaderResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	if l, _ := s.Store.Leadership(); !l.IsLeader {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if err := s.Cluster.MoveLeader(ctx, r.TargetID); err != nil {
		return nil, translate.ChangeError(ctx, err)
	}
	return &pb.MoveLeaderResponse{}, nil
}

var versionForm = regexp.MustCompile(`^v?\d+\.\d+(\.\d+)?$`)

// Downgrade implements etcdserverpb.MaintenanceServer. The version is that of the API; there is no
// lower one to downgrade to.
func (s *maintenanceServer) Downgrade(
	ctx context.Context, r *pb.DowngradeRequest,
) (*pb.DowngradeResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	switch {
	case r.Action == pb.DowngradeRequest_CANCEL:
		return &pb.DowngradeResponse{Header: s.Header(0), Version: minorVersion}, nil
	case r.Action != pb.DowngradeRequest_VALIDATE && r.Action != pb.DowngradeRequest_ENABLE:
		return nil, status.Error(codes.Unknown, "etcdserver: unknown method")
	case !versionForm.MatchString(r.Version):
		return nil, rpctypes.ErrGRPCWrongDowngradeVersionFormat
	}
	return nil, rpctypes.ErrGRPCInvalidDowngradeTargetVersion
}

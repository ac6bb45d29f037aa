package lockqueue

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
)

// lockServer is the Lock service.
type lockServer struct {
	v3lockpb.UnimplementedLockServer
	*queue
}

// Lock implements v3lockpb.LockServer. A caller whose lease has the lock already gets it again.
func (s *lockServer) Lock(
	ctx context.Context, r *v3lockpb.LockRequest,
) (*v3lockpb.LockResponse, error) {
	lease, err := s.leaseOf(ctx, r.Lease)
	if err != nil {
		return nil, err
	}
	p, answer, err := s.enter(ctx, r.Name, nil, lease)
	if err != nil {
		return nil, err
	}
	owner := answer.Responses[1].GetResponseRange().Kvs
	if len(owner) == 0 || owner[0].CreateRevision == p.revision {
		return &v3lockpb.LockResponse{Header: answer.Header, Key: p.key}, nil
	}
	header, err := s.wait(ctx, r.Name, p)
	if err != nil {
		s.leave(ctx, p)
		return nil, err
	}
	return &v3lockpb.LockResponse{Header: header, Key: p.key}, nil
}

// Unlock implements v3lockpb.LockServer. Unlocking a key that does not exist succeeds.
func (s *lockServer) Unlock(
	ctx context.Context, r *v3lockpb.UnlockRequest,
) (*v3lockpb.UnlockResponse, error) {
	answer, err := s.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: r.Key})
	if err != nil {
		return nil, err
	}
	return &v3lockpb.UnlockResponse{Header: answer.Header}, nil
}

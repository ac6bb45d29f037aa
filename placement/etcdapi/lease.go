package etcdapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store"
)

const (
	// minLeaseSeconds is the shortest term of a lease; a shorter request gets this term. It is
	// etcd's with its default election timeout.
	minLeaseSeconds = 2
	// maxLeaseSeconds is the longest term that etcd grants.
	maxLeaseSeconds = 9_000_000_000
)

type leaseServer struct {
	pb.UnimplementedLeaseServer
	*shared
}

// LeaseGrant implements etcdserverpb.LeaseServer.
func (s *leaseServer) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest,
) (*pb.LeaseGrantResponse, error) {
	if _, err := s.Identified(ctx); err != nil {
		return nil, err
	}
	if r.TTL > maxLeaseSeconds {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	seconds := max(r.TTL, minLeaseSeconds)
	for {
		id := r.ID
		if id == 0 {
			var err error
			if id, err = s.newLeaseID(); err != nil {
				return nil, translate.Error(ctx, err)
			}
		}
		result, err := s.Execute(ctx, store.Grant(id, uint64(seconds)*1000))
		if r.ID == 0 && errors.Is(err, rpctypes.ErrGRPCLeaseExist) {
			continue // a rare coincidence
		}
		if err != nil {
			return nil, err
		}
		return &pb.LeaseGrantResponse{Header: s.Header(result.Revision), ID: id, TTL: seconds}, nil
	}
}

// newLeaseID returns a random positive id.
func (s *leaseServer) newLeaseID() (int64, error) {
	var random [8]byte
	for {
		if _, err := io.ReadFull(s.Random, random[:]); err != nil {
			return 0, fmt.Errorf("random source: %w", err)
		}
		if id := int64(binary.BigEndian.Uint64(random[:]) >> 1); id != 0 {
			return id, nil
		}
	}
}

// LeaseRevoke implements etcdserverpb.LeaseServer.
func (s *leaseServer) LeaseRevoke(
	ctx context.Context, r *pb.LeaseRevokeRequest,
) (*pb.LeaseRevokeResponse, error) {
	if _, err := s.Identified(ctx); err != nil {
		return nil, err
	}
	result, err := s.Execute(ctx, store.Revoke(r.ID))
	if err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: s.Header(result.Revision)}, nil
}

// LeaseTimeToLive implements etcdserverpb.LeaseServer. For a lease that does not exist the time
// left is -1.
func (s *leaseServer) LeaseTimeToLive(
	ctx context.Context, r *pb.LeaseTimeToLiveRequest,
) (*pb.LeaseTimeToLiveResponse, error) {
	who, err := s.IdentifiedNow(ctx)
	if err != nil {
		return nil, err
	}
	state := s.Store.Authority()
	limited, cancel := context.WithTimeout(ctx, backend.RequestTimeout)
	defer cancel()
	info, err := s.Store.TimeToLive(limited, r.ID)
	if r.Keys && (err == nil || errors.Is(err, store.ErrLeaseNotFound)) {
		// Only the keys in the answer need the right.
		if err := translate.Error(ctx, state.ReadAll(who, info.Keys)); err != nil {
			return nil, err
		}
		if err := s.Unchanged(state); err != nil {
			return nil, err
		}
	}
	switch {
	case errors.Is(err, store.ErrLeaseNotFound):
		return &pb.LeaseTimeToLiveResponse{Header: s.Header(0), ID: r.ID, TTL: -1}, nil
	case err != nil:
		return nil, s.ReadError(ctx, err)
	}
	response := &pb.LeaseTimeToLiveResponse{Header: s.Header(0), ID: r.ID,
		TTL: int64(info.Left / time.Second), GrantedTTL: int64(info.Term / time.Second)}
	if r.Keys {
		response.Keys = info.Keys
	}
	return response, nil
}

// LeaseLeases implements etcdserverpb.LeaseServer: it lists the leases that the client may see
// (store.LeasesAs), including all that were granted and acknowledged anywhere before the call.
func (s *leaseServer) LeaseLeases(
	ctx context.Context, _ *pb.LeaseLeasesRequest,
) (*pb.LeaseLeasesResponse, error) {
	who, err := s.IdentifiedNow(ctx)
	if err != nil {
		return nil, err
	}
	response := &pb.LeaseLeasesResponse{Header: s.Header(0)}
	leases, err := s.Store.LeasesAs(ctx, who)
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	for _, id := range leases {
		response.Leases = append(response.Leases, &pb.LeaseStatus{ID: id})
	}
	return response, nil
}

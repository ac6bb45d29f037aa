package etcdapi

import (
	"context"
	"errors"
	"io"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
)

const (
	// maxRenewals bounds the renewals of a stream that are under way; as many more may wait behind
	// them.
	maxRenewals = 256
	// renewalsLinger is how long a stream waits after several renewals at a time. Clients with many
	// leases send due renewals in bursts, and renewing them together saves the cost of each, mostly
	// that of writing its answer. A client that waits for each answer is never delayed.
	renewalsLinger = 2 * time.Millisecond
)

type renewals = grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]

// LeaseKeepAlive implements etcdserverpb.LeaseServer. For a lease that does not exist, the renewed
// term is 0. Renewals that come while others are under way are done together, and answered in the
// order in which they came.
func (s *leaseServer) LeaseKeepAlive(stream renewals) error {
	ctx := stream.Context()
	requests, done := make(chan int64, maxRenewals), make(chan error, 2)
	// This goroutine, and a Send that waits, end at the latest when LeaseKeepAlive returns, because
	// gRPC then ends the stream.
	go func() {
		defer close(requests)
		if err := receiveRenewals(ctx, stream, requests); err != nil {
			done <- err
		}
	}()
	go func() { done <- s.renewAll(ctx, stream, requests) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func receiveRenewals(ctx context.Context, stream renewals, to chan<- int64) error {
	request := &pb.LeaseKeepAliveRequest{}
	for {
		if err := stream.RecvMsg(request); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		select {
		case to <- request.ID:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// renewAll answers until no more requests come.
func (s *leaseServer) renewAll(
	ctx context.Context, stream renewals, requests <-chan int64,
) error {
	ids := make([]int64, 0, maxRenewals)
	linger := time.NewTimer(renewalsLinger)
	defer linger.Stop()
	for first := range requests {
		ids = append(ids[:0], first)
		for more := true; more && len(ids) < maxRenewals; {
			select {
			case id, ok := <-requests:
				if more = ok; ok {
					ids = append(ids, id)
				}
			default:
				more = false
			}
		}
		// The header is from before the renewal: a lease that ends later ends at a later revision.
		header := s.Header(0)
		terms, refused := s.renew(ctx, ids)
		for i, term := range terms {
			if err := stream.Send(&pb.LeaseKeepAliveResponse{Header: header, ID: ids[i],
				TTL: int64(term / time.Second)}); err != nil {
				return err
			}
		}
		if refused != nil {
			return refused
		}
		if len(ids) > 1 && len(ids) < maxRenewals {
			linger.Reset(renewalsLinger)
			select {
			case <-linger.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// renew renews leases for a client that may write their keys. It checks the token each time. The
// terms returned are those of the first leases; refused is why the next lease, and those behind it,
// were not renewed.
func (s *leaseServer) renew(
	ctx context.Context, ids []int64,
) (terms []time.Duration, refused error) {
	if s.Store.Authority().Enabled() {
		// The client's rights are decided by up-to-date users and roles, and up-to-date keys of
		// leases.
		if err := s.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	for i := range ids {
		if refused = s.mayRenew(ctx, ids[i]); refused != nil {
			ids = ids[:i]
			break
		}
	}
	if len(ids) == 0 {
		return nil, refused
	}
	limited, cancel := context.WithTimeout(ctx, backend.RequestTimeout)
	defer cancel()
	terms, err := s.Store.RenewAll(limited, ids)
	if err != nil {
		return nil, s.ReadError(ctx, err)
	}
	return terms, refused
}

// mayRenew returns why a lease may not be renewed; nil if it may.
func (s *leaseServer) mayRenew(ctx context.Context, id int64) error {
	state := s.Store.Authority()
	who, err := s.Identified(ctx)
	if err != nil {
		return err
	}
	if state.Admin(who) != nil {
		keys, err := s.Store.AttachedKeys(id)
		if err == nil {
			err = state.WriteAll(who, keys)
		}
		if err != nil {
			return translate.Error(ctx, err)
		}
	}
	return s.Unchanged(state)
}

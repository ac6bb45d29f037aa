package coord

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// renew sends renewals until the session ends. It is a goroutine of the session.
func (s *Session) renew() {
	var stream renewals
	defer func() { stream.close() }()
	wait := s.ttl / 3
	for failed := 0; ; {
		timer := time.NewTimer(wait)
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		sent := s.client.clock()
		ttl, err := stream.renew(s.ctx, s.client, s.lease, min(s.client.attempt, s.ttl/3))
		switch {
		case s.ctx.Err() != nil:
			return
		case err == nil && ttl > 0:
			s.confirm(sent, ttl)
			wait, failed = max(0, ttl/3-time.Duration(s.client.clock()-sent)), 0
			continue
		case err == nil, errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.expired()
			return
		}
		stream.close()
		if s.client.etcd.Ctx().Err() != nil {
			s.finish(ErrSessionUnconfirmed, "its client was closed")
			return
		}
		// Also what no other attempt is likely to avoid, such as a missing permission: until the time
		// is over, nothing is lost.
		wait = min(retryBase<<min(failed, 10), s.ttl/10)
		failed++
	}
}

// renewals is a stream to one server.
type renewals struct {
	stream pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

// renew sends one renewal and waits for its answer, and opens the stream if it is not open. The
// client of etcd would do that by itself, but tells neither when it has sent a renewal nor why it
// ends.
func (r *renewals) renew(ctx context.Context, c *Client, lease clientv3.LeaseID,
	timeout time.Duration) (time.Duration, error) {
	if r.stream == nil {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
		stop := time.AfterFunc(timeout, cancel)
		stream, err := pb.NewLeaseClient(c.etcd.ActiveConnection()).LeaseKeepAlive(ctx)
		stop.Stop()
		if err != nil {
			cancel()
			return 0, rpctypes.Error(err)
		}
		r.stream, r.cancel = stream, cancel
	}
	stop := time.AfterFunc(timeout, r.cancel)
	defer stop.Stop()
	if err := r.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil {
		return 0, rpctypes.Error(err)
	}
	answer, err := r.stream.Recv()
	if err != nil {
		return 0, rpctypes.Error(err)
	}
	return time.Duration(answer.TTL) * time.Second, nil
}

func (r *renewals) close() {
	if r.cancel != nil {
		r.cancel()
	}
	r.stream, r.cancel = nil, nil
}

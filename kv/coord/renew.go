package coord

import (
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// renew is the goroutine of a session that sends renewals until the session ends.
func (s *Session) renew(stream *renewals) {
	defer s.client.renewing.leave(stream)
	wait := s.ttl / 3
	for failed := 0; ; {
		timer := time.NewTimer(wait)
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-stream.ended:
			timer.Stop()
			s.finish(ErrSessionUnconfirmed, "its client was closed")
			return
		case <-timer.C:
		}
		sent, ttl, err := stream.renew(s.ctx, s.lease, min(s.client.attempt, s.ttl/3))
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
		if s.client.etcd.Ctx().Err() != nil || errors.Is(err, ErrClosed) {
			s.finish(ErrSessionUnconfirmed, "its client was closed")
			return
		}
		// Even errors that another attempt is unlikely to avoid, such as a missing permission, are
		// retried, because nothing is lost until the time to live is over.
		wait = min(retryBase<<min(failed, 10), s.ttl/10)
		failed++
	}
}

package coord

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// DefaultTTL is the default time to live of a session.
	DefaultTTL = 15 * time.Second
	// MaxTTL is the maximum time to live of a session.
	MaxTTL = 24 * time.Hour

	// driftShare: the last 1/driftShare of the time to live is not used, because clocks run at
	// different speeds.
	driftShare = 50
)

// Session is a lease of the service that the client renews. All locks, leaderships, ephemeral keys
// and claims are held under a session, and end with it.
//
// A session lives as long as the service confirms its renewals, which are sent every third of the
// time to live. The session is lost if no renewal is confirmed for the time to live, counted on
// this machine's monotonic clock from the moment at which the last confirmed renewal was *sent*.
// This is safe whatever the service believes: the service counts from a later moment, so it cannot
// have given the held objects to others any sooner. (On Linux the monotonic clock continues while
// the machine is suspended. The last fiftieth of the time to live is not used, because clocks run
// at different speeds.)
//
// A session that has ended cannot be revived. Make another one.
type Session struct {
	client *Client
	lease  clientv3.LeaseID
	ttl    time.Duration
	label  string

	// ctx ends with the session, and its cause is the reason. running counts all goroutines.
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	// made counts the keys that were created under the session.
	made atomic.Uint64

	mu struct {
		sync.Mutex
		// deadline is the time at which the session is lost, by the client's clock.
		deadline int64
		expiry   *time.Timer
		// guard is the version of the session's guard key (txn_guard.go).
		guard int64
		// keys has the keys that are held, or are being created or removed.
		keys map[string]struct{}
	}
}

// SessionOption is an option of NewSession.
type SessionOption func(*sessionConfig)

type sessionConfig struct {
	ttl   time.Duration
	label string
}

// TTL sets how long the service waits for a session without renewals, in whole seconds (rounded
// up), up to MaxTTL. The service may have a minimum, such as two seconds. Session.TTL returns the
// actual time. The default is DefaultTTL.
func TTL(d time.Duration) SessionOption { return func(c *sessionConfig) { c.ttl = d } }

// Label sets the value of the keys of locks that the session holds or waits for, so that people can
// see the owner. It may be a host name, for instance.
func Label(s string) SessionOption { return func(c *sessionConfig) { c.label = s } }

// NewSession begins a session. ctx limits only this call. The session lasts until Close, or until
// it is lost.
func (c *Client) NewSession(ctx context.Context, options ...SessionOption) (*Session, error) {
	const op = "begin a session"
	cfg := sessionConfig{ttl: DefaultTTL}
	for _, o := range options {
		o(&cfg)
	}
	if cfg.ttl <= 0 || cfg.ttl > MaxTTL {
		return nil, invalid(op, "", fmt.Sprintf("a time to live of %s: give one above 0 and up to %s",
			cfg.ttl, MaxTTL))
	}
	stream := c.renewing.join(c)
	if stream == nil {
		return nil, fail(op, "", because("the client is closed", ErrClosed))
	}
	var granted *clientv3.LeaseGrantResponse
	var sent int64
	// An attempt whose outcome is unknown may leave a lease, which expires unused.
	err := c.until(ctx, func(ctx context.Context) (err error) {
		sent = c.clock()
		granted, err = c.etcd.Grant(ctx, int64((cfg.ttl+time.Second-1)/time.Second))
		return err
	})
	if err != nil {
		c.renewing.leave(stream)
		return nil, fail(op, "", err)
	}
	s := &Session{client: c, lease: granted.ID, label: cfg.label,
		ttl: time.Duration(granted.TTL) * time.Second}
	s.ctx, s.cancel = context.WithCancelCause(context.WithValue(context.Background(), sessionOf{}, s))
	s.mu.keys = make(map[string]struct{})
	s.mu.expiry = time.AfterFunc(time.Hour, s.checkDeadline)
	s.confirm(sent, s.ttl)
	s.running.Go(func() { s.renew(stream) })
	return s, nil
}

// Client is the client of the session.
func (s *Session) Client() *Client { return s.client }

// Lease returns the id of the session's lease.
func (s *Session) Lease() clientv3.LeaseID { return s.lease }

// TTL returns the time to live that the service has granted.
func (s *Session) TTL() time.Duration { return s.ttl }

// Left returns how long the session lives without a further confirmed renewal, by the client's
// clock. It returns 0 if the session has ended. Renewals are sent every third of the time to live.
// So if less than half of the time is left, the service does not answer.
func (s *Session) Left() time.Duration {
	if s.Err() != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leftLocked()
}

// Done returns a channel that is closed when the session has ended. Err returns the reason.
func (s *Session) Done() <-chan struct{} { return s.ctx.Done() }

// Context returns a context that ends with the session. context.Cause returns the same reason as
// Err.
func (s *Session) Context() context.Context { return s.ctx }

// Err returns nil while the session lives, and otherwise the reason of its end. It reads the clock:
// it never returns nil after the time to live has passed, even if the process was stopped and Done
// is not closed yet.
func (s *Session) Err() error {
	s.checkDeadline()
	return context.Cause(s.ctx)
}

// Close ends the session, and makes the service release everything that is held under it. If that
// is not confirmed before ctx ends, Close returns an error, and the service releases everything
// when the time to live is over. ctx may be the session's own context, or the context of an object
// held under it.
func (s *Session) Close(ctx context.Context) error {
	ctx, done := outlive(ctx, sessionOf{}, s, s.ttl)
	defer done()
	s.finish(ErrSessionClosed, "it was closed")
	s.running.Wait()
	err := s.client.until(ctx, func(ctx context.Context) error {
		_, err := s.client.etcd.Revoke(ctx, s.lease)
		return err
	})
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return fail("close the session", "", because(fmt.Sprintf("%s; what was held under it goes "+
		"when its time to live of %s is over", text(err), s.ttl), err))
}

// finish ends the session. Only the first reason is kept.
func (s *Session) finish(kind ErrorKind, message string) {
	s.cancel(&Error{Op: "session", Name: strconv.FormatInt(int64(s.lease), 16), Message: message,
		wraps: []error{ErrSessionEnded, kind}})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.expiry.Stop()
}

// confirm records that a renewal was confirmed. sent is the time at which it was sent.
func (s *Session) confirm(sent int64, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.deadline = max(s.mu.deadline, sent+int64(ttl-ttl/driftShare))
	s.mu.expiry.Reset(s.leftLocked())
}

func (s *Session) leftLocked() time.Duration {
	return time.Duration(max(0, s.mu.deadline-s.client.clock()))
}

// checkDeadline ends the session if its time is over.
func (s *Session) checkDeadline() {
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	left := s.leftLocked()
	if left > 0 {
		s.mu.expiry.Reset(left)
	}
	s.mu.Unlock()
	if left == 0 {
		s.finish(ErrSessionUnconfirmed, fmt.Sprintf("no renewal was confirmed within %s; "+
			"others may hold by now what was held under it", s.ttl))
	}
}

// within returns a context that ends with ctx or with the session.
func (s *Session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// unique returns the last part of a key. No other key has the same part.
func (s *Session) unique() string {
	return strconv.FormatInt(int64(s.lease), 16) + "-" + strconv.FormatUint(s.made.Add(1), 36)
}

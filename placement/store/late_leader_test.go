package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
)

// A lease that another member has granted and acknowledged, before the leader has applied that, can
// be renewed and asked for at the leader.
func TestLeaseBeforeTheLeaderHasIt(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Store) (time.Duration, error){
		"renewed": func(ctx context.Context, s *Store) (time.Duration, error) {
			terms, err := s.KeepAliveAll(ctx, []int64{4, 5, 6})
			if err != nil {
				return 0, err
			}
			if terms[0] == 0 || terms[2] != 0 {
				t.Errorf("a lease that is there, one that comes, and one that is not: %v", terms)
			}
			return terms[1], nil
		},
		"asked for": func(ctx context.Context, s *Store) (time.Duration, error) {
			return s.ServeTimeToLive(ctx, 5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCore(t, 2, nil)
				defer c.close()
				c.elect(c.members[0])
				leader, other := c.members[0].store, c.members[1]
				do(t, leader, Grant(4, 10_000))
				c.setLags(true)
				granted := make(chan error, 1)
				go func() {
					_, err := leader.DoOwn(t.Context(), Grant(5, 10_000))
					granted <- err
				}()
				synctest.Wait()
				other.catchUp()
				if _, err := other.store.Lease(5); err != nil {
					t.Fatalf("at the member that acknowledges it: %v", err)
				}
				go func() {
					synctest.Wait() // it looks before it waits for what is committed
					c.setLags(false)
				}()
				if left, err := ask(t.Context(), leader); left != 10*time.Second || err != nil {
					t.Errorf("at the leader: %v, %v", left, err)
				}
				if err := <-granted; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A lease whose end another member has acknowledged, before the leader has applied that, is not
// renewed by the leader, and is not there for it.
func TestEndedLeaseBeforeTheLeaderKnows(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Store) (time.Duration, error){
		"renewed": func(ctx context.Context, s *Store) (time.Duration, error) {
			terms, err := s.KeepAliveAll(ctx, []int64{4, 5})
			if err != nil {
				return 0, err
			}
			if terms[0] != 10*time.Second {
				t.Errorf("beside a lease that is there: %v", terms)
			}
			return terms[1], nil
		},
		"asked for": func(ctx context.Context, s *Store) (time.Duration, error) {
			left, err := s.ServeTimeToLive(ctx, 5)
			if errors.Is(err, command.ErrLeaseNotFound) {
				return 0, nil
			}
			return left, err
		},
		"described": func(ctx context.Context, s *Store) (time.Duration, error) {
			info, err := s.TimeToLive(ctx, 5)
			if errors.Is(err, command.ErrLeaseNotFound) {
				return 0, nil
			}
			return info.Left, err
		},
		"listed": func(ctx context.Context, s *Store) (time.Duration, error) {
			if _, err := s.Read(ctx); err != nil {
				return 0, err
			}
			all, err := s.LeasesAs(ctx, nil)
			if slices.Contains(all, 5) {
				return time.Second, err
			}
			return 0, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCore(t, 2, nil)
				defer c.close()
				c.elect(c.members[0])
				leader, other := c.members[0].store, c.members[1]
				do(t, leader, Grant(4, 10_000))
				do(t, leader, Grant(5, 10_000))
				c.setLags(true)
				revoked := make(chan error, 1)
				go func() {
					_, err := leader.DoOwn(t.Context(), Revoke(5))
					revoked <- err
				}()
				synctest.Wait()
				other.catchUp()
				if _, err := other.store.Lease(5); !errors.Is(err, command.ErrLeaseNotFound) {
					t.Fatalf("at the member that acknowledges its end: %v", err)
				}
				go func() {
					synctest.Wait() // it waits for what is committed
					c.setLags(false)
				}()
				if left, err := ask(t.Context(), leader); left != 0 || err != nil {
					t.Errorf("at the leader: %v, %v", left, err)
				}
				if err := <-revoked; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

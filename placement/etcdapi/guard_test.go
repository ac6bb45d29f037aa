package etcdapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
)

// ledStore is a member of which only the leadership is asked.
type ledStore struct {
	backend.Store
	leadership execute.Leadership
	changed    chan struct{}
}

func (s *ledStore) Leadership() (execute.Leadership, <-chan struct{}) {
	return s.leadership, s.changed
}

// A call that demands a leader waits at a member that has just started, until the member hears of a
// leader or has been there for LeaderGrace. A member that had a leader and lost it refuses at once.
func TestStartingMemberAwaitsALeader(t *testing.T) {
	const grace = 3 * time.Second
	for name, c := range map[string]struct {
		elected, limit time.Duration // 0: none
		want           error
		after          time.Duration
	}{
		"a leader is elected": {elected: time.Second, after: time.Second},
		"there is none":       {want: rpctypes.ErrGRPCNoLeader, after: grace},
		"the caller gives up": {limit: time.Second, want: rpctypes.ErrGRPCNoLeader, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &ledStore{changed: make(chan struct{})}
				g := &guard{shared: &shared{Config: Config{Store: s, Limits: Limits{LeaderGrace: grace}}},
					began: time.Now()}
				ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(
					rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
				if c.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				began := time.Now()
				ended := make(chan error, 1)
				go func() { _, err := g.admit(ctx); ended <- err }()
				if c.elected > 0 {
					time.Sleep(c.elected) // virtual
					was := s.changed
					s.leadership, s.changed = execute.Leadership{Leader: 2}, make(chan struct{})
					close(was)
				}
				if err := <-ended; !errors.Is(err, c.want) || time.Since(began) != c.after {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if c.limit > 0 {
					return
				}
				s.leadership = execute.Leadership{}
				lost := time.Now()
				if _, err := g.admit(ctx); !errors.Is(err, rpctypes.ErrGRPCNoLeader) ||
					time.Since(lost) != 0 {
					t.Errorf("without a leader later: %v after %v", err, time.Since(lost))
				}
			})
		})
	}
}

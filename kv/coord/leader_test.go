package coord_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// cluster is a service of several servers, which can be killed.
type cluster interface {
	service
	Leader(ctx context.Context) (int, error)
	Kill(server int) error
	Restart(ctx context.Context, server int) error
}

// Leaders are killed again and again. One holds the lock at a time, numbers are given once, and
// sessions live on.
func TestLeadersDie(t *testing.T) {
	w := begin(t)
	c, err := startService(w.ctx, 3)
	w.must(err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var holders, rounds atomic.Int64
	var mu sync.Mutex
	var numbers []uint64
	var all sync.WaitGroup
	for range 3 {
		client := w.clientAt(c.Endpoints(), coord.AttemptTimeout(2e9))
		s := w.session(client, coord.TTL(30e9))
		all.Go(func() {
			for ctx.Err() == nil {
				// What has begun is to end well, so that nothing is unknown.
				lock, err := client.Mutex("m").Lock(w.ctx, s)
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				made, err := client.Sequence("s").Create(w.ctx, s, nil)
				holders.Add(-1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				numbers = append(numbers, made.Number)
				mu.Unlock()
				if err := lock.Unlock(w.ctx); err != nil {
					t.Error(err)
				}
				rounds.Add(1)
			}
			if err := s.Err(); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		before := rounds.Load()
		w.until("locks are given", func() bool { return rounds.Load() > before+5 })
		leader, err := c.Leader(w.ctx)
		w.must(err)
		w.must(c.Kill(leader))
		before = rounds.Load()
		w.until("locks are given without the former leader", func() bool {
			return rounds.Load() > before+5
		})
		w.must(c.Restart(w.ctx, leader))
	}
	cancel()
	all.Wait()
	slices.Sort(numbers)
	for i, n := range numbers {
		if n != uint64(i+1) {
			t.Fatalf("number %d is the %dth of %d", n, i+1, len(numbers))
		}
	}
	t.Logf("%d rounds", rounds.Load())
}

package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/placement/store/command"
)

// What waits for a leader at a member that stops, because it was removed for one, ends then, and
// not when its caller gives up.
func TestWaitingForALeaderEndsWithTheMember(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, s *Store) error{
		"write": func(ctx context.Context, s *Store) error {
			_, err := s.Execute(ctx, writes(Put([]byte("a"), nil)))
			return err
		},
		"renewal": func(ctx context.Context, s *Store) error {
			_, err := s.Renew(ctx, 1)
			return err
		},
		"read": func(ctx context.Context, s *Store) error {
			_, err := s.Read(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := linked(t, 3, nil)
				s := c.members[1].store
				ended := make(chan error, 1)
				go func() { ended <- call(t.Context(), s) }()
				synctest.Wait()
				select {
				case err := <-ended:
					t.Fatalf("without a leader: %v", err)
				default:
				}
				s.Close()
				if err := <-ended; !errors.Is(err, command.ErrClosed) {
					t.Errorf("at its end: %v", err)
				}
			})
		})
	}
}

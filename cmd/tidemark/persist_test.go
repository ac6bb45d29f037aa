package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// A command that waits bears a core that is silent for less than a minute, and nothing else.
func TestPersist(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		name     string
		silence  time.Duration
		err      error
		want     error
		atLeast  time.Duration
		attempts bool // more than one
	}{
		{"answered at once", 0, nil, nil, 0, false},
		{"silent for half a minute", 30 * time.Second, kv.ErrUnavailable, nil, 30 * time.Second, true},
		{"timed out", 30 * time.Second, context.DeadlineExceeded, nil, 30 * time.Second, true},
		{"without a quorum", 30 * time.Second, kv.ErrNoQuorum, nil, 30 * time.Second, true},
		{"silent for good", time.Hour, kv.ErrUnavailable, kv.ErrUnavailable, time.Minute, true},
		{"refused", time.Hour, refused, refused, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, attempts := time.Now(), 0
			got, err := persist(t.Context(), func() (int, error) {
				attempts++
				if time.Since(began) < c.silence {
					return 0, fmt.Errorf("asked: %w", c.err)
				}
				return 7, nil
			})
			if !errors.Is(err, c.want) || err == nil && got != 7 || time.Since(began) < c.atLeast ||
				time.Since(began) > 2*time.Minute || (attempts > 1) != c.attempts {
				t.Errorf("%s: %d, %v after %d attempts and %v", c.name, got, err, attempts,
					time.Since(began))
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := persist(ctx, func() (int, error) {
		cancel()
		return 0, kv.ErrUnavailable
	}); err == nil {
		t.Error("what was interrupted goes on")
	}
}

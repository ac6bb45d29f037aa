package main

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// coreSilence is how long a command waits for a core that does not answer, after the core has
// recorded the change: meanwhile the core may elect a leader, or its servers may restart.
const coreSilence = time.Minute

// persist asks the core until it answers, for as long as its silence is borne. What it refuses is
// told at once.
func persist[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	began := time.Now()
	for {
		answer, err := ask()
		silent := errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrNoQuorum) ||
			errors.Is(err, context.DeadlineExceeded)
		if err == nil || !silent || ctx.Err() != nil || time.Since(began) > coreSilence {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

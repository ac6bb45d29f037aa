package main

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// coreSilence is how long the core may not answer while something is waited for that it has
// recorded: its lead changes hands meanwhile, or its servers are restarted.
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

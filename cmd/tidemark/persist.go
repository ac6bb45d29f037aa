package main

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// coreSilence is the time for which a command waits for a core that does not answer, after the core
// has recorded the change. Meanwhile the core may elect a leader, or its servers may restart.
const coreSilence = time.Minute

// persist asks the core until it answers, or until it has been silent for coreSilence. If the core
// refuses, persist returns the error at once.
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

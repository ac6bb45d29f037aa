package target

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

// defaultRetries applies if Options.Retries is zero. Throttling by AWS ends within seconds, and a
// restart of a server takes up to a minute.
var defaultRetries = backoff.Backoff{
	Name: "backup_target", Base: 200 * time.Millisecond, Cap: 10 * time.Second, Jitter: 0.5,
	Budget: 2 * time.Minute,
}

// do makes attempts until an attempt succeeds, an attempt fails permanently, the time for retries
// is over, or the context ends. An attempt returns an error of the library or one of the errors of
// this package.
func (t *s3Target) do(
	ctx context.Context, operation, name string, attempt func(context.Context) error,
) error {
	retries := t.options.Retries
	begun := time.Now()
	for n := 0; ; n++ {
		if err := ended(ctx, t.text, operation, name); err != nil {
			return err
		}
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		if err := ended(ctx, t.text, operation, name); err != nil {
			return err
		}
		verdict := judge(operation, err)
		failed := &failure{target: t.text, operation: operation, name: name, class: verdict.class,
			cause: err, advice: verdict.advice}
		if err == verdict.class {
			failed.cause = nil
		}
		if !verdict.retry {
			return failed
		}
		wait, spent := retries.Delay(n, rand.Float64()), time.Since(begun)
		if retries.Budget > 0 && spent+wait > retries.Budget {
			failed.advice = fmt.Sprintf("%d attempts in %v failed", n+1, spent.Round(time.Millisecond))
			return failed
		}
		if t.options.OnRetry != nil {
			t.options.OnRetry(operation, name, failed)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return ended(ctx, t.text, operation, name)
		}
	}
}

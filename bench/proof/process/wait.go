package process

import (
	"context"
	"fmt"
	"time"
)

// Until calls check every interval until it returns nil. When ctx ends, Until returns check's last
// error. If one of the processes ends, waiting is useless: Until returns an error with the end of
// its log.
func Until(ctx context.Context, what string, interval time.Duration,
	check func(context.Context) error, watched ...*Process) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	begin := time.Now()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		for _, p := range watched {
			if !p.Running() {
				return fmt.Errorf("%s: %s ended (%v); its log ends:\n%s", what, p.Name(), p.Exit(),
					p.LogTail(2000))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v: %w", what,
				time.Since(begin).Round(time.Millisecond), err)
		case <-ticker.C:
		}
	}
}

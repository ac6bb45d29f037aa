package process

import (
	"context"
	"fmt"
	"time"
)

// Until calls check again and again, every interval, until it returns nil; when ctx ends it gives
// up with check's last error. The processes named are watched meanwhile: if one ends, waiting is
// useless and the error holds its log's end.
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

package authcache

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/access"
)

// auditEvery is how often a refusal is logged in the long run, and auditBurst how many are at once.
const (
	auditEvery = 100 * time.Millisecond
	auditBurst = 50
)

// auditor logs what is refused. A client that goes on asking gets errors as fast as it likes, so
// not each has a line: the next line says how many had none.
type auditor struct {
	cache *Cache
	mu    struct {
		sync.Mutex
		left    int
		filled  time.Duration
		begun   bool
		omitted int
	}
}

// take says whether there is a line now, and how many refusals had none since the last.
func (a *auditor) take(now time.Duration) (omitted int, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.begun {
		a.mu.begun, a.mu.left, a.mu.filled = true, auditBurst, now
	}
	if n := (now - a.mu.filled) / auditEvery; n > 0 {
		a.mu.left = int(min(auditBurst, time.Duration(a.mu.left)+n))
		a.mu.filled += n * auditEvery
	}
	if a.mu.left == 0 {
		a.mu.omitted++
		return 0, false
	}
	a.mu.left--
	omitted, a.mu.omitted = a.mu.omitted, 0
	return omitted, true
}

func (a *auditor) refused(c *client, e *access.Error, n *access.Permission, now time.Duration) {
	if e.Reason == access.Unknown {
		return // it is the server's trouble, and in its log
	}
	omitted, ok := a.take(now)
	if !ok {
		return
	}
	user := slog.String("user", c.Name())
	if c.shown.Token == "" {
		user.Key = "certificate"
	}
	attrs := []slog.Attr{slog.Bool("audit", true), slog.String("outcome", "refused"), user}
	if c.shown.Address != "" {
		attrs = append(attrs, slog.String("address", c.shown.Address))
	}
	if n != nil {
		attrs = append(attrs, slog.Uint64("keyspace", n.Keyspace))
	}
	attrs = append(attrs, slog.String("error", e.Text))
	if omitted > 0 {
		attrs = append(attrs, slog.Int("others", omitted))
	}
	a.cache.config.Logger.LogAttrs(context.Background(), slog.LevelWarn, "data: refused", attrs...)
}

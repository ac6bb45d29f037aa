package authcache

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/access"
)

// auditEvery is the average time between two logged refusals, and auditBurst how many may be logged
// at once.
const (
	auditEvery = 100 * time.Millisecond
	auditBurst = 50
)

// auditor logs refusals. A client that keeps asking gets errors as fast as it likes, so not every
// refusal is logged: the next line says how many were omitted.
type auditor struct {
	log *slog.Logger
	mu  struct {
		sync.Mutex
		left    int
		filled  time.Duration
		begun   bool
		omitted int
	}
}

// take reports whether a refusal is logged now, and how many were omitted since the last line.
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

// refused notes the refusal of a client, and what the client has shown of itself.
func (a *auditor) refused(name func() string, shown access.Credentials, e *access.Error,
	n *access.Permission, now time.Duration) {
	if e.Reason == access.Unknown {
		return // the server itself is the cause, and logs it elsewhere
	}
	omitted, ok := a.take(now)
	if !ok {
		return
	}
	user := slog.String("user", name())
	if shown.Token == "" {
		user.Key = "certificate"
	}
	attrs := []slog.Attr{slog.Bool("audit", true), slog.String("outcome", "refused"), user}
	if shown.Address != "" {
		attrs = append(attrs, slog.String("address", shown.Address))
	}
	if n != nil {
		attrs = append(attrs, slog.Uint64("keyspace", n.Keyspace))
	}
	attrs = append(attrs, slog.String("error", e.Text))
	if omitted > 0 {
		attrs = append(attrs, slog.Int("others", omitted))
	}
	a.log.LogAttrs(context.Background(), slog.LevelWarn, "data: refused", attrs...)
}

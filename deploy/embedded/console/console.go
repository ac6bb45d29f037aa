package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a Console.
type Config struct {
	// Open connects to the cluster as a user. With an empty name it connects without a user
	// (Dialing.Open).
	Open func(ctx context.Context, user, password string) (Cluster, error)
	// Guarded reports whether authentication is enabled, so that callers have to log in.
	Guarded func() bool
	// Refuse returns why a caller may not see the console while authentication is not enabled. It
	// returns an empty text if the caller may. The rule is that of debug pages.
	Refuse func(*http.Request) string
	// Admin lets callers make changes. Without it the console is read-only.
	Admin bool
	// Demo has the buttons of a demo. It is nil if there are none.
	Demo Demo
	// Metrics are the metrics of the process, for data that the cluster does not provide. It may be
	// nil.
	Metrics prometheus.Gatherer
	// Version is the version of the server.
	Version string
	Logger  *slog.Logger
	// Now is the wall clock, for the ages of sessions. nil means the system's clock.
	Now func() time.Time
}

// Console is the web interface of a cluster: an http.Handler for /console/ and below. It may be
// closed before or after the HTTP server that uses it.
type Console struct {
	config   Config
	files    *files
	mux      *http.ServeMux
	hub      *hub
	sessions *sessions
	// nobody is the viewer for all callers while authentication is not enabled.
	nobody *viewer

	// streams and questions have a token for each one that is under way.
	streams, questions chan struct{}
	logins             *logins
	failures           failures

	ctx    context.Context
	cancel context.CancelFunc
	// mu guards closed, and prevents additions to running after closed is set.
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		http.Error(w, "this server is closing", http.StatusServiceUnavailable)
		return
	}
	c.running.Add(1)
	c.mu.Unlock()
	defer c.running.Done()
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; object-src 'none'; base-uri 'none'; "+
		"form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if why := forged(r); why != "" {
		refuse(w, http.StatusForbidden, why)
		return
	}
	c.mux.ServeHTTP(w, r)
}

// Close ends all streams and sessions, and returns when no goroutine of the console runs any more.
func (c *Console) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.running.Wait()
	c.hub.end()
	c.nobody.drop(true)
	c.sessions.end(func(*session) bool { return true })
}

// errLogIn is the answer to callers without a session while authentication is enabled.
var errLogIn = errors.New("authentication is enabled in this cluster: log in as one of its users")

// allowed returns an error if a viewer may not see the console any more.
func (c *Console) allowed(_ context.Context, v *viewer) error {
	if v.user == "" && c.config.Guarded() {
		return errLogIn
	}
	return nil
}

// over reports whether a page of a viewer may be shown no longer: its session has ended, or the page
// is from before authentication was enabled.
func (c *Console) over(v *viewer) bool {
	return c.sessions.over(v) || c.allowed(c.ctx, v) != nil
}

// viewerOf returns the viewer of a request, or the status and the reason of a refusal.
func (c *Console) viewerOf(r *http.Request) (v *viewer, status int, why string) {
	if !c.config.Guarded() {
		if why := c.config.Refuse(r); why != "" {
			return nil, http.StatusForbidden, why
		}
		if why := rebound(r); why != "" {
			return nil, http.StatusForbidden, why
		}
		return c.nobody, 0, ""
	}
	if v := c.sessions.of(r); v != nil {
		return v, 0, ""
	}
	return nil, http.StatusUnauthorized, errLogIn.Error()
}

// viewed wraps a handler for callers who may see the console.
func (c *Console) viewed(
	handler func(http.ResponseWriter, *http.Request, *viewer),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, status, why := c.viewerOf(r)
		if v == nil {
			refuse(w, status, why)
			return
		}
		handler(w, r, v)
	}
}

package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/tidemarkdb/tidemark/kv"
)

// sessionState is the answer of /console/api/session.
type sessionState struct {
	// Guarded: authentication is enabled. User is the user who has logged in, or empty.
	Guarded bool   `json:"guarded"`
	User    string `json:"user,omitempty"`
	// Refused says why the caller may not see the console. It is empty if the caller may.
	Refused string `json:"refused,omitempty"`
	Admin   bool   `json:"admin"`
	Demo    bool   `json:"demo"`
	Version string `json:"version"`
}

func (c *Console) session(w http.ResponseWriter, r *http.Request) {
	v, _, why := c.viewerOf(r)
	state := sessionState{Guarded: c.config.Guarded(), Refused: why, Version: c.config.Version}
	if v != nil {
		state.User, state.Admin, state.Demo = v.user, c.config.Admin, c.config.Demo != nil
	}
	reply(w, state)
}

// login begins a session of a user, if the cluster accepts the password.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	var given struct{ User, Password string }
	if !read(w, r, &given) {
		return
	}
	if !c.config.Guarded() {
		refuse(w, http.StatusConflict, "authentication is not enabled in this cluster")
		return
	}
	if given.User == "" || len(given.User) > 256 || len(given.Password) > 4096 {
		refuse(w, http.StatusBadRequest, "give a user and a password")
		return
	}
	end := c.logins.begin(r.Context(), hostOf(r))
	if end == nil {
		refuse(w, http.StatusTooManyRequests, "many users log in just now: try again in a moment")
		return
	}
	defer end()
	v := newViewer(given.User, func(ctx context.Context) (Cluster, error) {
		return c.config.Open(ctx, given.User, given.Password)
	})
	ctx, cancel := context.WithTimeout(r.Context(), asking)
	defer cancel()
	if err := v.check(ctx); err != nil {
		v.drop(true)
		if omitted, ok := c.failures.take(c.config.Now()); ok {
			about := []any{"user", given.User, "from", r.RemoteAddr, "error", err}
			if omitted > 0 {
				about = append(about, "others", omitted)
			}
			c.config.Logger.Info("console: a login failed", about...)
		}
		status := http.StatusServiceUnavailable
		if errors.Is(err, kv.ErrUnauthenticated) || errors.Is(err, kv.ErrPermissionDenied) {
			status = http.StatusUnauthorized
		}
		refuse(w, status, sentence(err))
		return
	}
	c.config.Logger.Info("console: a user has logged in", "user", given.User, "from", r.RemoteAddr)
	http.SetCookie(w, cookie(r, c.sessions.begin(v)))
	reply(w, struct{}{})
}

// check returns an error if the cluster does not accept the password, or if nobody can tell: kv.Open
// succeeds if the core does not answer. A call needs the user's token, for which the core has
// checked the password.
func (v *viewer) check(ctx context.Context) error {
	defer v.hold()()
	cluster, err := v.ask(ctx)
	if err != nil {
		return err
	}
	_, err = cluster.Status(ctx)
	return err
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	if v := c.sessions.of(r); v != nil {
		c.sessions.end(func(s *session) bool { return s.viewer == v })
	}
	http.SetCookie(w, cookie(r, ""))
	reply(w, struct{}{})
}

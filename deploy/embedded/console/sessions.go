package console

import (
	"crypto/rand"
	"net"
	"net/http"
	"sync"
	"time"
)

// cookieName returns the name of the cookie with a session's secret. Browsers send the cookies of a
// host to all of its ports, so the name has the port: servers at other ports have other sessions.
func cookieName(r *http.Request) string {
	const name = "tidemark_console"
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return name + "_" + port
	}
	return name
}

// sessions has the sessions of users who have logged in. A session is identified by a secret of 128
// random bits, which only the browser has.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]*session
}

type session struct {
	viewer      *viewer
	since, used time.Time
}

// begin makes a session. If the maximum number of sessions of the user exists, the least recently
// used one of them ends. Otherwise, if the maximum number of sessions exists, the least recently
// used one of all ends.
func (s *sessions) begin(v *viewer) (secret string) {
	s.end(func(x *session) bool { return s.expired(x) })
	secret = rand.Text()
	var gone *session
	s.mu.Lock()
	oldest, own, count := "", "", 0
	for name, x := range s.all {
		if oldest == "" || x.used.Before(s.all[oldest].used) {
			oldest = name
		}
		if x.viewer.user != v.user {
			continue
		}
		if count++; own == "" || x.used.Before(s.all[own].used) {
			own = name
		}
	}
	switch {
	case count >= sessionsOfUser:
		oldest = own
	case len(s.all) < maxSessions:
		oldest = ""
	}
	if gone = s.all[oldest]; gone != nil {
		delete(s.all, oldest)
	}
	s.all[secret] = &session{viewer: v, since: s.now(), used: s.now()}
	s.mu.Unlock()
	if gone != nil {
		gone.viewer.drop(true)
	}
	return secret
}

func (s *sessions) expired(x *session) bool {
	now := s.now()
	return now.Sub(x.since) > sessionAge || now.Sub(x.used) > sessionIdle
}

// of returns the viewer of a request's session, or nil.
func (s *sessions) of(r *http.Request) *viewer {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[cookie.Value]
	if x == nil || s.expired(x) {
		return nil
	}
	x.used = s.now()
	return x.viewer
}

// over reports whether the session of a viewer has ended. An open stream counts as use.
func (s *sessions) over(v *viewer) bool {
	if v.user == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.viewer == v && s.now().Sub(x.since) <= sessionAge {
			x.used = s.now()
			return false
		}
	}
	return true
}

// end ends the sessions for which `which` returns true, and closes the connections of their
// viewers.
func (s *sessions) end(which func(*session) bool) {
	var gone []*session
	s.mu.Lock()
	for secret, x := range s.all {
		if which(x) {
			gone = append(gone, x)
			delete(s.all, secret)
		}
	}
	s.mu.Unlock()
	for _, x := range gone {
		x.viewer.drop(true)
	}
}

// cookie makes the cookie of a session. An empty secret removes the cookie from the browser.
func cookie(r *http.Request, secret string) *http.Cookie {
	c := &http.Cookie{Name: cookieName(r), Value: secret, Path: "/console/", HttpOnly: true,
		Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionAge.Seconds())}
	if secret == "" {
		c.MaxAge = -1
	}
	return c
}

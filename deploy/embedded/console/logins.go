package console

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// logins bounds the concurrent logins, so that callers who guess passwords do not keep the core
// busy. A host gets at most half of them. Other logins wait.
type logins struct {
	mu      sync.Mutex
	running int
	// of has the running and the waiting logins of each host that has any.
	of map[string]*loginsOfHost
	// ended is closed when a login ends.
	ended chan struct{}
}

type loginsOfHost struct{ running, waiting int }

func newLogins() *logins {
	return &logins{of: map[string]*loginsOfHost{}, ended: make(chan struct{})}
}

// begin waits until a login from a host may begin. It returns nil if that takes longer than
// loginPatience, or if many logins from the host wait. The caller calls end once.
func (l *logins) begin(ctx context.Context, host string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.of[host]
	if h == nil {
		h = &loginsOfHost{}
		l.of[host] = h
	}
	defer l.forget(host, h)
	if h.waiting >= maxWaitingLogins {
		return nil
	}
	h.waiting++
	defer func() { h.waiting-- }()
	patience := time.NewTimer(loginPatience)
	defer patience.Stop()
	for l.running >= maxLogins || h.running >= maxLogins/2 {
		ended, over := l.ended, false
		l.mu.Unlock()
		select {
		case <-ended:
		case <-patience.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		l.mu.Lock()
		if over {
			return nil
		}
	}
	l.running++
	h.running++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
		h.running--
		close(l.ended)
		l.ended = make(chan struct{})
		l.forget(host, h)
	}
}

// forget removes a host without logins. mu is held.
func (l *logins) forget(host string, h *loginsOfHost) {
	if *h == (loginsOfHost{}) && l.of[host] == h {
		delete(l.of, host)
	}
}

// hostOf returns the host of a caller. A host may have all IPv6 addresses of a network of 64 bits.
func hostOf(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	host := at.Addr().Unmap()
	if network, err := host.Prefix(64); err == nil && host.Is6() {
		return network.String()
	}
	return host.String()
}

// failures bounds the lines about failed logins, so that callers who guess passwords do not push
// all other lines out of the server's last lines.
type failures struct {
	mu      sync.Mutex
	last    time.Time
	omitted int
}

// take reports whether a failure is logged at a time, and how many were left out since the last
// line.
func (f *failures) take(now time.Time) (omitted int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.last); since >= 0 && since < failuresPause {
		f.omitted++
		return 0, false
	}
	omitted, f.last, f.omitted = f.omitted, now, 0
	return omitted, true
}

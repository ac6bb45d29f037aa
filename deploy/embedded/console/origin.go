package console

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// header is a header that the pages send with each request that changes something. Pages of other
// sites cannot send it without permission, which the console never gives.
const header = "X-Tidemark-Console"

// forged returns why a request that changes something does not come from the console's own pages.
// It returns an empty text if the request does, or if it changes nothing.
func forged(r *http.Request) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return ""
	}
	const refused = "changes are for the console's own pages"
	if r.Header.Get(header) != "1" {
		return refused
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
	default:
		return refused
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if from, err := url.Parse(origin); err != nil || !strings.EqualFold(from.Host, r.Host) {
			return refused
		}
	}
	return ""
}

// rebound returns why a request without a user is refused although the caller's address is allowed:
// a page of another site may have made its own name resolve to this machine. Allowed names of this
// machine are "localhost" and addresses. With TLS, the certificate proves the name.
func rebound(r *http.Request) string {
	if r.TLS != nil {
		return ""
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return ""
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return "without users and TLS the console is for addresses, not for names: open it at the " +
		"server's IP address, or at localhost"
}

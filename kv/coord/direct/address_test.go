package direct

import "testing"

// Endpoints are called where they say, and never in plain text if they ask for TLS.
func TestAddressOf(t *testing.T) {
	for endpoint, want := range map[string][2]string{ // without TLS, and with
		"h:1": {"h:1", "h:1"}, "http://h:1": {"h:1", "h:1"}, "https://h:1": {"", "h:1"},
		"https://[::1]:1/x": {"", "[::1]:1"}, "h": {"", ""}, "http://h": {"", ""},
		"unix:///x:1": {"", ""}, "unixs://h:1": {"", ""}, "": {"", ""}, "http://%": {"", ""},
	} {
		for i, secure := range []bool{false, true} {
			if got := addressOf(endpoint, secure); got != want[i] {
				t.Errorf("%q, TLS %v: %q, not %q", endpoint, secure, got, want[i])
			}
		}
	}
}

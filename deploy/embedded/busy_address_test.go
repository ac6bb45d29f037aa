package embedded

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
)

// A server whose address is taken leaves nothing in its directory that binds that to the address:
// it can be started with another one.
func TestABusyAddressClaimsNoDirectory(t *testing.T) {
	fs := vfs.NewMem()
	synctest.Test(t, func(t *testing.T) {
		busy := onlyServer(fs)
		busy.Listen, busy.Advertise, busy.Core = "busy", "busy", []string{"busy"}
		busy.NewListener = func(string) (net.Listener, error) {
			return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
		}
		_, err := StartServer(t.Context(), busy)
		if err == nil || !strings.Contains(err.Error(), "another process listens there already") {
			t.Fatal(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, err := StartServer(t.Context(), onlyServer(fs))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		if err := s.WaitReady(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The same is said of an HTTP address that is taken.
func TestABusyHTTPAddress(t *testing.T) {
	_, err := web.Start("127.0.0.1:80", nil, func(string) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}
	})
	const want = "the HTTP address: cannot listen on 127.0.0.1:80: another process listens there " +
		"already"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

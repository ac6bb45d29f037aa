package embedded

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// onAllAddresses is a server that other machines can reach.
func onAllAddresses(t *testing.T, core string) ServerConfig {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	self := "127.0.0.1:" + port
	if core == "" {
		core = self
	}
	c := ServerConfig{Dir: t.TempDir(), Listen: "0.0.0.0:" + port, Advertise: self,
		Core: strings.Split(core, ",")}
	taken := false
	c.NewListener = func(address string) (net.Listener, error) {
		if taken {
			return net.Listen("tcp", address) // after a restart
		}
		taken = true
		return l, nil
	}
	t.Cleanup(func() { l.Close() })
	return c
}

func running(t *testing.T, c ServerConfig) *Server {
	t.Helper()
	s, err := StartServer(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStrangersKeepOut: a server that others can reach starts only if it knows its peers by
// something, or is told not to care.
func TestStrangersKeepOut(t *testing.T) {
	c := onAllAddresses(t, "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
	if _, err := StartServer(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "--secret-file") {
		t.Errorf("it started, %v", err)
	}
	for text, want := range map[string]string{
		"":     "needs at least 32",
		"abcd": "needs at least 32",
		"a secret that is not made of digits, but long": "not one line of hexadecimal digits",
	} {
		c := onAllAddresses(t, "")
		c.SecretFile = filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(c.SecretFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := StartServer(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with the secret %q: %v, want %q", text, err, want)
		}
	}
	c = onAllAddresses(t, "")
	c.SecretFile = filepath.Join(t.TempDir(), "none")
	if _, err := StartServer(t.Context(), c); err == nil {
		t.Error("it started with a secret that is not there")
	}
	c = onAllAddresses(t, "")
	c.Insecure = true
	if err := running(t, c).WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, clustersecret.FileName)); err == nil {
		t.Error("an insecure server has made a secret")
	}
}

// TestClusterSecret: the server that founds a cluster makes its secret; with a copy another one
// joins, and strangers do not.
func TestClusterSecret(t *testing.T) {
	first := onAllAddresses(t, "")
	s, err := StartServer(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(first.Dir, clustersecret.FileName)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the secret's file: %v, %v", info, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = running(t, first) // it finds it again
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}

	d := client.NewDialer(client.DialerConfig{})
	defer d.Close()
	conn, err := d.Conn(first.Advertise)
	if err != nil {
		t.Fatal(err)
	}
	_, err = clusterpb.NewCoreClient(conn).RegisterNode(t.Context(),
		&clusterpb.RegisterNodeRequest{Server: 7, Address: "127.0.0.1:9"})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger's registration: %v", err)
	}

	stranger := onAllAddresses(t, first.Advertise)
	stranger.Listen, stranger.Advertise = stranger.Advertise, "" // this machine only: it may start
	refused := running(t, stranger)
	for reason := ""; !strings.Contains(reason, "--secret-file"); {
		ok, now := refused.Ready()
		if ok {
			t.Fatal("a server without the secret has joined")
		}
		reason = now
		if refused.Err() != nil {
			reason = refused.Err().Error()
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("it says %q", reason)
		case <-time.After(10 * time.Millisecond):
		}
	}

	second := onAllAddresses(t, first.Advertise)
	second.SecretFile = path
	if err := running(t, second).WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLoopback: which addresses are of this machine alone.
func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:7400": true, "127.8.9.1:1": true,
		"localhost:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, ":7400": false,
		"0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "db1:1": false, "nonsense": false} {
		if got := loopback(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

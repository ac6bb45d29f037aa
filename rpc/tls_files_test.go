package rpc

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A server and its clients go over to renewed certificates, even of another authority, while they
// run. Files that do not fit together change nothing, and the log says so once.
func TestTLSFilesAreRenewed(t *testing.T) {
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	renewed := func() *authority {
		a := newAuthority(t)
		a.sign(t, "server",
			&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: both})
		return a
	}
	here := newAuthority(t)
	copyFrom := func(a *authority, names ...string) {
		t.Helper()
		for _, name := range names {
			text, err := os.ReadFile(a.path(name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(here.path(name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := []string{"server.crt", "server.key", "ca.crt"}
	copyFrom(renewed(), all...)
	var log bytes.Buffer
	files, err := LoadTLSFiles(TLSConfig{Cert: here.path("server.crt"),
		Key: here.path("server.key"), CA: here.path("ca.crt"),
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l := listening(t)
	s := NewServer(ServerConfig{TLS: files.Server(true, "h2")})
	clusterpb.RegisterClusterServer(s, &clusterServer{})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	defer func() { s.Stop(); <-done }()
	call := func(config DialerConfig) error {
		d := NewDialer(config)
		defer d.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := clusterpb.NewClusterClient(mustConn(t, d, l.Addr().String())).Status(ctx,
			&clusterpb.StatusRequest{})
		return err
	}
	look := func() { files.looked.Store(0) } // as if a second had passed
	if err := call(DialerConfig{TLSNow: files.Client}); err != nil {
		t.Fatal(err)
	}
	before := DialerConfig{TLS: files.Client()}

	next := renewed()
	copyFrom(next, "server.crt") // its key is still to come
	for range 3 {
		look()
		if err := call(DialerConfig{TLSNow: files.Client}); err != nil {
			t.Fatalf("with files that do not fit together: %v", err)
		}
	}
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("the log said it %d times: %s", n, log.String())
	}
	copyFrom(next, all...)
	look()
	if err := call(DialerConfig{TLSNow: files.Client}); err != nil {
		t.Errorf("after the files were renewed: %v", err)
	}
	if err := call(before); err == nil || !strings.Contains(Reason(err), "authority") {
		t.Errorf("with the former certificate: %v", err)
	}
	if err := os.Remove(here.path("ca.crt")); err != nil {
		t.Fatal(err)
	}
	if err := files.Reload(); err == nil {
		t.Error("a missing file was no error")
	}
	if err := call(DialerConfig{TLSNow: files.Client}); err != nil {
		t.Errorf("after a file was removed: %v", err)
	}
}

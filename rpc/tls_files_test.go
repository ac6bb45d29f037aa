package rpc

import (
	"bytes"
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// lockedLog is a log that is read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

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
	var log lockedLog
	files, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: here.path("server.crt"),
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
	call := func(config client.DialerConfig, options ...grpc.CallOption) error {
		d := client.NewDialer(config)
		defer d.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := clusterpb.NewClusterClient(mustConn(t, d, l.Addr().String())).Status(ctx,
			&clusterpb.StatusRequest{}, options...)
		return err
	}
	if err := call(client.DialerConfig{TLSNow: files.Client}); err != nil {
		t.Fatal(err)
	}
	before := client.DialerConfig{TLS: files.Client()}

	next := renewed()
	copyFrom(next, "server.crt") // its key is still to come
	await(t, "the log says that the files do not fit together", func() bool {
		if err := call(client.DialerConfig{TLSNow: files.Client}); err != nil {
			t.Fatalf("with files that do not fit together: %v", err)
		}
		return strings.Contains(log.String(), "cannot be used")
	})
	copyFrom(next, all...)
	await(t, "the files are read again", func() bool {
		// A handshake for which the client looks before the files are read, and the server after that,
		// fails: the authorities have nothing in common. The next one goes by the new files.
		if err := call(client.DialerConfig{TLSNow: files.Client},
			grpc.WaitForReady(true)); err != nil {
			t.Errorf("while the files were renewed: %v", err)
		}
		return strings.Contains(log.String(), "were read again")
	})
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("the log said it %d times: %s", n, log.String())
	}
	if err := call(before); err == nil || !strings.Contains(wire.Reason(err), "authority") {
		t.Errorf("with the former certificate: %v", err)
	}
	if err := os.Remove(here.path("ca.crt")); err != nil {
		t.Fatal(err)
	}
	if err := files.Reload(); err == nil {
		t.Error("a missing file was no error")
	}
	if err := call(client.DialerConfig{TLSNow: files.Client}); err != nil {
		t.Errorf("after a file was removed: %v", err)
	}
}

// A server goes on calling another one over the same Dialer when the certificate that its
// connection began with is one of a server's no longer: the authority was changed, as docs say.
func TestConnectionsOutliveCertificates(t *testing.T) {
	sign := func() *authority {
		a := newAuthority(t)
		a.sign(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
		return a
	}
	first, next, here := sign(), sign(), newAuthority(t)
	fill := func(name string, from ...*authority) {
		t.Helper()
		var all []byte
		for _, a := range from {
			text, err := os.ReadFile(a.path(name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text...)
		}
		if err := os.WriteFile(here.path(name), all, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"server.crt", "server.key", "ca.crt"} {
		fill(name, first)
	}
	files, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: here.path("server.crt"),
		Key: here.path("server.key"),
		CA:  here.path("ca.crt"), PeerCA: here.path("ca.crt")})
	if err != nil {
		t.Fatal(err)
	}
	l := listening(t)
	s := NewServer(ServerConfig{TLS: files.Server(true, "h2"),
		Peers: &authn.PeerPolicy{Certificate: files.IsPeer}})
	clusterpb.RegisterCoreServer(s, &countingCore{})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	defer func() { s.Stop(); <-done }()
	d := client.NewDialer(client.DialerConfig{TLSNow: files.Client})
	defer d.Close()
	core := clusterpb.NewCoreClient(mustConn(t, d, l.Addr().String()))
	call := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := core.Heartbeat(ctx, &clusterpb.HeartbeatRequest{}, grpc.WaitForReady(true))
		return err
	}
	step := func(what string, from ...*authority) {
		t.Helper()
		if what == "the authorities" {
			fill("ca.crt", from...)
		} else {
			fill("server.crt", from...)
			fill("server.key", from...)
		}
		if err := files.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	until := files.Expires()
	step("the authorities", first, next)
	step("the certificate", next)
	if got := files.Expires(); time.Until(until) <= 0 || time.Until(got) <= 0 {
		t.Errorf("the certificates run out at %v and %v", until, got)
	}
	if err := call(); err != nil {
		t.Errorf("with both authorities: %v", err)
	}
	step("the authorities", next)
	if err := call(); status.Code(err) != codes.Unavailable {
		t.Errorf("on the connection that began with the former certificate: %v", err)
	}
	if err := call(); err != nil {
		t.Errorf("on the next connection: %v", err)
	}
	if n := counterValue(t, s.metrics.refused); n != 0 {
		t.Errorf("%v strangers were counted", n)
	}
}

package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A connection that cannot be made says which of the many causes it is, and what to do: each is met
// with real sockets.
func TestReasonTellsConnectionFailuresApart(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	asServer, asClient := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	before, after := time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	for _, signer := range []*authority{a, other} {
		signer.sign(t, "server", &x509.Certificate{IPAddresses: local, ExtKeyUsage: asServer})
		signer.sign(t, "client", &x509.Certificate{ExtKeyUsage: asClient})
	}
	a.sign(t, "old-server", &x509.Certificate{IPAddresses: local, ExtKeyUsage: asServer,
		NotBefore: before, NotAfter: after})
	a.sign(t, "old-client",
		&x509.Certificate{ExtKeyUsage: asClient, NotBefore: before, NotAfter: after})
	a.sign(t, "elsewhere", &x509.Certificate{DNSNames: []string{"db.example"}, ExtKeyUsage: asServer})

	server := func(name string, mutual bool) *tls.Config {
		authority := ""
		if mutual {
			authority = a.path("ca.crt")
		}
		return mustLoad(authn.LoadServerTLS(a.path(name+".crt"), a.path(name+".key"), authority))(t)
	}
	shows := func(of *authority, name string) *tls.Config {
		if name == "" {
			return mustLoad(authn.LoadClientTLS("", "", of.path("ca.crt")))(t)
		}
		return mustLoad(authn.LoadClientTLS(of.path(name+".crt"), of.path(name+".key"),
			a.path("ca.crt")))(t)
	}

	for _, c := range []struct {
		name   string
		listen func(*testing.T) string
		client *tls.Config
		want   string
	}{
		{"nothing listens", nothing, nil, "connection refused"},
		{"a server that wants TLS", tidemark(server("server", false)), nil, "the server wants TLS"},
		{"a server that wants TLS and certificates", tidemark(server("server", true)), nil,
			"the server wants TLS"},
		{"a server without TLS", tidemark(nil), shows(a, ""), "the server speaks no TLS"},
		{"a server of another authority", tidemark(server("server", false)), shows(other, ""),
			"the server's certificate is signed by an authority that is not known here"},
		{"a server with an expired certificate", tidemark(server("old-server", false)),
			shows(a, ""), "the server's certificate has expired or is not valid yet"},
		{"a server with a certificate for another name", tidemark(server("elsewhere", false)),
			shows(a, ""), "the server's certificate is for another name or address"},
		{"no client certificate", tidemark(server("server", true)), shows(a, ""),
			"the server wants a client certificate, and was given none"},
		{"a foreign client certificate", tidemark(server("server", true)), shows(other, "client"),
			"the server refused the client certificate, since it knows no authority that signed it"},
		{"an expired client certificate", tidemark(server("server", true)), shows(a, "old-client"),
			"the server refused the client certificate, since it has expired"},
		{"a server's certificate as a client's", tidemark(server("server", true)),
			shows(a, "server"), "the server refused the client certificate"},
		{"HTTP", web(false), nil, "what answers there is not a server of Tidemark"},
		{"HTTPS", web(true), shows(a, ""), "speaks TLS and is not a server of Tidemark"},
		{"HTTPS without TLS", web(true), nil, "not a server of Tidemark"},
		{"HTTP with TLS", web(false), shows(a, ""), "the server speaks no TLS"},
		{"a service of its own", greeting("SSH-2.0-test\r\n"), nil, "not a server of Tidemark"},
		{"a server that closes at once", greeting(""), nil, "closed"},
		{"a server that is killed", reset, nil, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := client.NewDialer(client.DialerConfig{TLS: c.client})
			defer d.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			addr := c.listen(t)
			_, err := clusterpb.NewClusterClient(mustConn(t, d, addr)).Status(ctx,
				&clusterpb.StatusRequest{})
			if got := wire.Reason(err); err == nil || !strings.Contains(got, c.want) {
				t.Errorf("Reason(%v)\n = %q\nwant in it %q", err, got, c.want)
			}
			_, err = batchConn(t, d, addr, nil).Do(ctx, get("key"))
			var broken *client.ErrStreamBroken
			if !errors.As(err, &broken) || broken.Sent {
				t.Fatal(err)
			}
			if got := wire.Reason(broken.Cause); !strings.Contains(got, c.want) {
				t.Errorf("of a batch: Reason(%v)\n = %q\nwant in it %q", err, got, c.want)
			}
		})
	}
}

func mustLoad(config *tls.Config, err error) func(*testing.T) *tls.Config {
	return func(t *testing.T) *tls.Config {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
}

// tidemark is a server of ours.
func tidemark(config *tls.Config) func(*testing.T) string {
	return func(t *testing.T) string {
		l := listening(t)
		s := NewServer(ServerConfig{TLS: config})
		clusterpb.RegisterClusterServer(s, &clusterServer{})
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		t.Cleanup(func() { s.Stop(); <-done })
		return l.Addr().String()
	}
}

func web(secure bool) func(*testing.T) string {
	return func(t *testing.T) string {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		if secure {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
}

// nothing is an address where no process listens.
func nothing(t *testing.T) string {
	l := listening(t)
	_ = l.Close()
	return l.Addr().String()
}

// greeting accepts connections, says something, takes what it is sent and closes them.
func greeting(words string) func(*testing.T) string {
	return func(t *testing.T) string {
		return answering(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, words)
			_ = conn.(*net.TCPConn).CloseWrite()
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, conn)
		})
	}
}

// reset breaks each connection as the kernel does for a process that was killed.
func reset(t *testing.T) string {
	return answering(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.(*net.TCPConn).SetLinger(0)
	})
}

func answering(t *testing.T, do func(net.Conn)) string {
	l := listening(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			do(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

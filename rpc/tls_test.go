package rpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// authority signs certificates for a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.sign(t, "ca",
		&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign writes NAME.crt and NAME.key.
func (a *authority) sign(t testing.TB, name string,
	template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.Subject = pkix.Name{CommonName: name}
	if template.IsCA {
		// Authorities have names of their own, by which servers ask for certificates.
		template.Subject.CommonName += " " + template.SerialNumber.String()
	}
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.path(name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

func TestTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	a.sign(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	for _, signer := range []*authority{a, other} {
		signer.sign(t, "client",
			&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	}
	load := func(config *tls.Config, err error) *tls.Config {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	call := func(server, shown *tls.Config) error {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := NewServer(ServerConfig{TLS: server})
		clusterpb.RegisterClusterServer(s, &clusterServer{})
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(l) }()
		defer func() { s.Stop(); <-done }()
		d := client.NewDialer(client.DialerConfig{TLS: shown})
		defer d.Close()
		_, err = clusterpb.NewClusterClient(mustConn(t, d, l.Addr().String())).Status(t.Context(),
			&clusterpb.StatusRequest{})
		return err
	}
	plain := load(authn.LoadServerTLS(a.path("server.crt"), a.path("server.key"), ""))
	mutual := load(authn.LoadServerTLS(a.path("server.crt"), a.path("server.key"),
		a.path("ca.crt")))
	anonymous := load(authn.LoadClientTLS("", "", a.path("ca.crt")))
	known := load(authn.LoadClientTLS(a.path("client.crt"), a.path("client.key"), a.path("ca.crt")))
	foreign := load(authn.LoadClientTLS(other.path("client.crt"), other.path("client.key"),
		a.path("ca.crt")))
	distrusting := load(authn.LoadClientTLS("", "", other.path("ca.crt")))
	for _, test := range []struct {
		name           string
		server, client *tls.Config
		ok             bool
	}{
		{"server only", plain, anonymous, true},
		{"mutual", mutual, known, true},
		{"no client certificate", mutual, anonymous, false},
		{"foreign client certificate", mutual, foreign, false},
		{"foreign server", plain, distrusting, false},
		{"plain client", plain, nil, false},
		{"plain server", nil, anonymous, false},
	} {
		if err := call(test.server, test.client); (err == nil) != test.ok ||
			(err != nil && status.Code(err) != codes.Unavailable) {
			t.Errorf("%s: %v", test.name, err)
		}
	}

	// Bad files are named.
	empty := a.path("empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, load := range map[string]func() (*tls.Config, error){
		"missing.crt": func() (*tls.Config, error) {
			return authn.LoadServerTLS(a.path("missing.crt"), a.path("server.key"), "")
		},
		"server.crt": func() (*tls.Config, error) {
			return authn.LoadServerTLS(a.path("server.crt"), a.path("client.key"), "")
		},
		"missing.ca": func() (*tls.Config, error) {
			return authn.LoadServerTLS(a.path("server.crt"), a.path("server.key"), a.path("missing.ca"))
		},
		"empty": func() (*tls.Config, error) { return authn.LoadClientTLS("", "", empty) },
		"together": func() (*tls.Config, error) {
			return authn.LoadClientTLS(a.path("client.crt"), "",
				"")
		},
		"client.crt": func() (*tls.Config, error) {
			return authn.LoadClientTLS(a.path("client.crt"), a.path("server.key"), "")
		},
	} {
		if _, err := load(); !contains(err, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

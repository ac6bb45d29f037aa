package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// loadServerTLS reads a server's certificate and key (PEM files). With ca set, it asks every client
// for a certificate signed by that authority; without, it asks for none.
func loadServerTLS(cert, key, ca string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load server certificate %s with key %s: %w", cert, key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	if ca != "" {
		if config.ClientCAs, err = loadAuthority(ca); err != nil {
			return nil, err
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// LoadClientTLS reads what a client, or a server that dials other servers, needs: the authority
// that signs the servers' certificates (empty: the system's), and its own certificate and key if
// servers ask for one (both empty if not).
func LoadClientTLS(cert, key, ca string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf(
			"load client certificate: certificate %q and key %q must be given together", cert, key)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("load client certificate %s with key %s: %w", cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if ca != "" {
		pool, err := loadAuthority(ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	return config, nil
}

func loadAuthority(path string) (*x509.CertPool, error) { return loadAuthorities(path) }

// loadAuthorities reads the authorities of several files; an empty name is none.
func loadAuthorities(paths ...string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, path := range paths {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("load certificate authority: %w", err)
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("load certificate authority %s: no PEM certificate in the file", path)
		}
	}
	return pool, nil
}

// clientCredentials asks for the configuration anew for each connection, since the files behind it
// may have changed.
type clientCredentials struct {
	credentials.TransportCredentials
	current func() *tls.Config
}

func newClientCredentials(current func() *tls.Config) credentials.TransportCredentials {
	return clientCredentials{credentials.NewTLS(showing(current())), current}
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials {
	return clientCredentials{c.TransportCredentials.Clone(), c.current}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, authority string,
	conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(showing(c.current())).ClientHandshake(ctx, authority, conn)
}

// showing is the configuration with which a client shows its certificate also to a server that asks
// for those of other authorities: the server then says that it knows no authority that signed it.
// Package tls would show none, and the server would say that it was given none.
func showing(config *tls.Config) *tls.Config {
	if len(config.Certificates) == 0 || config.GetClientCertificate != nil {
		return config
	}
	config = config.Clone()
	all := config.Certificates
	config.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		for i := range all {
			if asked.SupportsCertificate(&all[i]) == nil {
				return &all[i], nil
			}
		}
		return &all[0], nil
	}
	return config
}

package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// LoadServerTLS reads a server's certificate and key (PEM files). With ca set, it asks every client for a certificate signed
// by that authority; without, it asks for none.
func LoadServerTLS(cert, key, ca string) (*tls.Config, error) {
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

// LoadClientTLS reads what a client, or a server that dials other servers, needs: the authority that signs the servers'
// certificates (empty: the system's), and its own certificate and key if servers ask for one (both empty if not).
func LoadClientTLS(cert, key, ca string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("load client certificate: certificate %q and key %q must be given together", cert, key)
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

func loadAuthority(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load certificate authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("load certificate authority %s: no PEM certificate in the file", path)
	}
	return pool, nil
}

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// certificates are the files of one authority, and of the single certificate that servers and
// clients of a measured cluster use.
type certificates struct{ authority, certificate, key string }

// flags returns the TLS flags of every command of Tidemark that connects or listens. It returns
// none without certificates.
func (c certificates) flags() []string {
	if c.authority == "" {
		return nil
	}
	return []string{"--tls-ca", c.authority, "--tls-cert", c.certificate, "--tls-key", c.key}
}

// httpClient makes a client for the HTTP addresses of servers with these certificates. It also
// returns the scheme of their URLs.
func (c certificates) httpClient() (*http.Client, string, error) {
	if c.authority == "" {
		return &http.Client{Transport: &http.Transport{}}, "http", nil
	}
	text, err := os.ReadFile(c.authority)
	if err != nil {
		return nil, "", err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, "", fmt.Errorf("no certificate in %s", c.authority)
	}
	config := &tls.Config{RootCAs: pool}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, "https", nil
}

// makeCertificates writes new certificates below dir.
func makeCertificates(dir string) (certificates, error) {
	fail := func(err error) (certificates, error) {
		return certificates{}, fmt.Errorf("make certificates: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
		}
	}
	authority := template(1, "bench compare")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	member := template(2, "member")
	member.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	member.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	memberKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	c := certificates{
		authority:   filepath.Join(dir, "authority.crt"),
		certificate: filepath.Join(dir, "member.crt"), key: filepath.Join(dir, "member.key"),
	}
	sign := func(file string, t *x509.Certificate, public crypto.PublicKey) error {
		der, err := x509.CreateCertificate(rand.Reader, t, authority, public, authorityKey)
		if err != nil {
			return err
		}
		return writePEM(file, "CERTIFICATE", der)
	}
	if err := sign(c.authority, authority, authorityKey.Public()); err != nil {
		return fail(err)
	}
	if err := sign(c.certificate, member, memberKey.Public()); err != nil {
		return fail(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(memberKey)
	if err != nil {
		return fail(err)
	}
	if err := writePEM(c.key, "PRIVATE KEY", der); err != nil {
		return fail(err)
	}
	return c, nil
}

func writePEM(file, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(file, text, 0o600)
}

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair are the files of a certificate and of its key.
type Pair struct{ Cert, Key string }

// PairOf are the files NAME.crt and NAME.key in a directory.
func PairOf(dir, name string) Pair {
	return Pair{filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")}
}

// backdated is by how much certificates begin before they are made, for clocks that are behind.
const backdated = 5 * time.Minute

// NewAuthority makes an authority with a common name, and writes its files. Files that are there
// are left alone, and an error.
func NewAuthority(files Pair, name string, valid time.Duration, now time.Time) (*Authority, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		NotBefore: now.Add(-backdated), NotAfter: now.Add(valid),
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	a := &Authority{certificate: template, key: key}
	return a, a.write(files, template, key)
}

// LoadAuthority reads the files of an authority.
func LoadAuthority(files Pair) (*Authority, error) {
	certificate, err := readBlock(files.Cert, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	a := &Authority{}
	if a.certificate, err = x509.ParseCertificate(certificate); err != nil {
		return nil, fmt.Errorf("%s: %w", files.Cert, err)
	}
	key, err := readBlock(files.Key, "EC PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	if a.key, err = x509.ParseECPrivateKey(key); err != nil {
		return nil, fmt.Errorf("%s: %w", files.Key, err)
	}
	if !a.certificate.IsCA || !a.key.PublicKey.Equal(a.certificate.PublicKey) {
		return nil, fmt.Errorf("%s and %s are not the certificate and the key of an authority",
			files.Cert, files.Key)
	}
	return a, nil
}

// Server makes the certificate of a server that is reached by the hosts: names or IP addresses. It
// is also what the server shows when it calls others.
func (a *Authority) Server(files Pair, hosts []string, valid time.Duration, now time.Time) error {
	if len(hosts) == 0 {
		return errors.New("a server's certificate needs the hosts by which the server is reached")
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: hosts[0]},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.sign(files, template, valid, now)
}

// Client makes the certificate of a client with a common name.
func (a *Authority) Client(files Pair, name string, valid time.Duration, now time.Time) error {
	return a.sign(files, &x509.Certificate{Subject: pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, valid, now)
}

func (a *Authority) sign(files Pair, template *x509.Certificate, valid time.Duration,
	now time.Time) error {
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.NotBefore, template.NotAfter = now.Add(-backdated), now.Add(valid)
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	return a.write(files, template, key)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// write signs a certificate and writes it with its key. For an authority that is its own.
func (a *Authority) write(files Pair, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeBlock(files.Key, "EC PRIVATE KEY", private, 0o600); err != nil {
		return err
	}
	return writeBlock(files.Cert, "CERTIFICATE", signed, 0o644)
}

// writeBlock writes a new file.
func writeBlock(path, kind string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already; move it away, or choose another name", path)
	}
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: content}), f.Sync(), f.Close())
}

func readBlock(path, kind string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s: no %s in PEM form in it", path, kind)
	}
	return block.Bytes, nil
}

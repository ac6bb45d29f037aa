package authn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// tlsLookEvery is the least time between two checks whether the files have changed.
const tlsLookEvery = time.Second

// TLSFiles holds a server's certificate, key and authorities, whose files may be replaced while it
// runs: a handshake uses the present files, and open connections are not affected. If the files are
// invalid (a certificate without its key, for a moment), the former ones stay in use, and the log
// says so once. Safe for concurrent use.
type TLSFiles struct {
	config  TLSConfig
	logger  *slog.Logger
	current atomic.Pointer[tlsPair]
	// looked is when the files were last checked, in nanoseconds.
	looked atomic.Int64

	mu struct {
		sync.Mutex
		// seen is the state of the files when they were last read, with or without success.
		seen [4]fileState
	}
}

// TLSConfig names the files of a server, all PEM.
type TLSConfig struct {
	// Cert and Key are the server's certificate and key, which it also uses as a client of other
	// servers.
	Cert, Key string
	// CA holds the authorities that sign clients' certificates; empty: clients need none.
	CA string
	// PeerCA holds the authorities that sign servers' certificates; empty: those of CA. PeerName is
	// a DNS name that servers' certificates must have; empty: any. See PeerRule.
	PeerCA, PeerName string
	// Logger is nil for none.
	Logger *slog.Logger
}

// tlsPair is the parsed content of the files, with the rule for servers' certificates.
type tlsPair struct {
	server, client *tls.Config
	servers        PeerRule
}

type fileState struct {
	modified time.Time
	size     int64
}

// LoadTLSFiles reads the files. The server's own certificate must satisfy the rule for servers'
// certificates.
func LoadTLSFiles(c TLSConfig) (*TLSFiles, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	f := &TLSFiles{config: c, logger: c.Logger}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Reload reads the files now. An error leaves everything as it was.
func (f *TLSFiles) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.seen = f.states()
	return f.readLocked()
}

func (f *TLSFiles) readLocked() error {
	c := &f.config
	server, err := LoadServerTLS(c.Cert, c.Key, c.CA)
	if err != nil {
		return err
	}
	authority := c.CA
	if c.PeerCA != "" {
		authority = c.PeerCA
	}
	client, err := LoadClientTLS(c.Cert, c.Key, authority)
	if err != nil {
		return err
	}
	servers := PeerRule{Name: c.PeerName}
	if c.PeerCA != "" {
		servers.Authorities = client.RootCAs
		if server.ClientCAs, err = loadAuthorities(c.CA, c.PeerCA); err != nil {
			return err
		}
		server.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if f.IdentifiesPeers() {
		if err := checkOwn(servers, server.Certificates[0]); err != nil {
			return fmt.Errorf("the certificate %s would not be taken for a server's by the others: %w",
				c.Cert, err)
		}
		client.VerifyConnection = func(state tls.ConnectionState) error {
			return servers.Check(state.PeerCertificates)
		}
	}
	f.current.Store(&tlsPair{server, client, servers})
	return nil
}

// checkOwn applies the rule to a certificate of this server's.
func checkOwn(rule PeerRule, own tls.Certificate) error {
	chain := make([]*x509.Certificate, 0, len(own.Certificate))
	for _, der := range own.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		chain = append(chain, c)
	}
	return rule.Check(chain)
}

// IdentifiesPeers reports that servers identify themselves to each other by certificates.
func (f *TLSFiles) IdentifiesPeers() bool { return f.config.CA != "" || f.config.PeerCA != "" }

// IsPeer returns an error if a connection is not one of a server of the cluster. It is for
// PeerPolicy.Certificate.
func (f *TLSFiles) IsPeer(state *tls.ConnectionState) error {
	if !f.IdentifiesPeers() {
		return errors.New("servers show no certificates to each other without --tls-ca")
	}
	rule := f.latest().servers
	return rule.Check(state.PeerCertificates)
}

// Expires returns the first expiry among the server's certificate and the certificates sent with
// it.
func (f *TLSFiles) Expires() (first time.Time) {
	for _, own := range f.latest().server.Certificates {
		for _, der := range own.Certificate {
			c, err := x509.ParseCertificate(der)
			if err == nil && (first.IsZero() || c.NotAfter.Before(first)) {
				first = c.NotAfter
			}
		}
	}
	return first
}

// states returns the states of the files. A missing file has the zero state.
func (f *TLSFiles) states() (all [4]fileState) {
	c := &f.config
	for i, path := range []string{c.Cert, c.Key, c.CA, c.PeerCA} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			all[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return all
}

// latest returns the present content, and reads the files again if they have changed.
func (f *TLSFiles) latest() *tlsPair {
	now, looked := time.Now().UnixNano(), f.looked.Load()
	if now-looked < int64(tlsLookEvery) && now >= looked || !f.looked.CompareAndSwap(looked, now) {
		return f.current.Load()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	states := f.states()
	if states == f.mu.seen {
		return f.current.Load()
	}
	f.mu.seen = states
	if err := f.readLocked(); err != nil {
		f.logger.Error("the TLS files have changed and cannot be used; "+
			"those read before stay in use", "error", err)
	} else {
		f.logger.Info("the TLS files have changed and were read again", "certificate", f.config.Cert)
	}
	return f.current.Load()
}

// Server returns the configuration of a listener for the given protocols (ALPN). Each handshake
// uses the present files. demand refuses clients without a certificate if there are authorities.
func (f *TLSFiles) Server(demand bool, protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := f.latest().server.Clone()
			config.NextProtos = protocols
			if !demand && config.ClientCAs != nil {
				config.ClientAuth = tls.VerifyClientCertIfGiven
			}
			return config, nil
		},
		// Some callers check that there is a certificate.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair := f.latest().server; len(pair.Certificates) > 0 {
				return &pair.Certificates[0], nil
			}
			return nil, errors.New("there is no certificate")
		},
	}
}

// Client returns the configuration with which the server connects to others. Call it for each
// connection.
func (f *TLSFiles) Client() *tls.Config { return f.latest().client }

// LoadServerTLS reads a server's certificate and key (PEM files). With ca set, it asks every client
// for a certificate signed by that authority; without, it asks for none.
func LoadServerTLS(cert, key, ca string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load server certificate %s with key %s: %w", cert, key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
	if ca != "" {
		if config.ClientCAs, err = loadAuthorities(ca); err != nil {
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
		pool, err := loadAuthorities(ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	return config, nil
}

// loadAuthorities reads the authorities of several files; empty names are skipped.
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

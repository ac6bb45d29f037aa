package rpc

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// tlsLookEvery is how often, at most, a handshake looks whether the files have changed.
const tlsLookEvery = time.Second

// TLSFiles is a server's certificate, key and authorities, which may be renewed while it runs: a
// handshake goes by the files as they are, and connections that stand are left alone. Files that
// cannot be used (a certificate without its key, for a moment) change nothing: what was read before
// stays, and the log says so once. Safe for concurrent use.
type TLSFiles struct {
	cert, key, ca string
	logger        *slog.Logger
	current       atomic.Pointer[tlsPair]
	// looked is when the files were last looked at, in nanoseconds.
	looked atomic.Int64

	mu struct {
		sync.Mutex
		// seen are the files as they were when they were last read, well or not.
		seen [3]fileState
	}
}

// tlsPair is what was read.
type tlsPair struct{ server, client *tls.Config }

type fileState struct {
	modified time.Time
	size     int64
}

// LoadTLSFiles reads the files (see loadServerTLS). logger is nil for none.
func LoadTLSFiles(cert, key, ca string, logger *slog.Logger) (*TLSFiles, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	f := &TLSFiles{cert: cert, key: key, ca: ca, logger: logger}
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
	server, err := loadServerTLS(f.cert, f.key, f.ca)
	if err != nil {
		return err
	}
	client, err := LoadClientTLS(f.cert, f.key, f.ca)
	if err != nil {
		return err
	}
	f.current.Store(&tlsPair{server, client})
	return nil
}

// states is how the files stand. One that is not there has the zero state.
func (f *TLSFiles) states() (all [3]fileState) {
	for i, path := range []string{f.cert, f.key, f.ca} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			all[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return all
}

// latest is what holds now.
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
		f.logger.Info("the TLS files have changed and were read again", "certificate", f.cert)
	}
	return f.current.Load()
}

// Server is the configuration of a listener that speaks the given protocols (ALPN). Each handshake
// takes the files as they are. demand says that clients without a certificate are refused where
// there are authorities; else such a client is known as one.
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
		// Some callers want to see that there is a certificate.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair := f.latest().server; len(pair.Certificates) > 0 {
				return &pair.Certificates[0], nil
			}
			return nil, errors.New("there is no certificate")
		},
	}
}

// Client is the configuration by which the server calls others. Ask anew for each connection.
func (f *TLSFiles) Client() *tls.Config { return f.latest().client }

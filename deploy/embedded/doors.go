package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// Which callers are taken for servers of the cluster. With TLS a certificate says it
// (authn.PeerRule), without TLS that the caller knows the cluster's secret. A server that has
// neither listens on this machine alone, unless it is told to trust its network.

// secretName is the file in the directory of the first server of a cluster that holds the secret
// which that server has made.
const secretName = "cluster.secret"

const (
	// secretBytes is the length of a secret that is made here, minSecretBytes that of the shortest
	// one that is believed.
	secretBytes    = 32
	minSecretBytes = 16
	maxSecretFile  = 4 << 10
)

// NewSecret makes a cluster secret as it stands in a file: one line of hexadecimal digits.
func NewSecret() string {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return hex.EncodeToString(secret) + "\n"
}

// readSecret reads a cluster secret.
func readSecret(path string) (transport.Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the cluster secret: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	if err != nil {
		return nil, fmt.Errorf("the cluster secret: %w", err)
	}
	return parseSecret(path, text)
}

func parseSecret(path string, text []byte) (transport.Secret, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the cluster secret %s: it is not one line of hexadecimal digits; "+
			"`tidemark secret` makes one", path)
	case len(secret) < minSecretBytes:
		return nil, fmt.Errorf("the cluster secret %s: it has %d hexadecimal digits, and needs at "+
			"least %d; `tidemark secret` makes one", path, 2*len(secret), 2*minSecretBytes)
	}
	return secret, nil
}

// readable says that others than the owner may read a file.
func readable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o077 != 0
}

// foundsAlone says that the server is all of the core, and so founds a cluster by itself.
func (c *ServerConfig) foundsAlone() bool {
	return len(c.Core) == 1 && c.Core[0] == c.Advertise && c.has(RoleCore)
}

// loopback says that an address is of this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// peerPolicy says by what the server knows others, and gives the secret that it proves to know. It
// makes the secret of a cluster that the server founds by itself.
func (s *Server) peerPolicy() (*authn.PeerPolicy, error) {
	c := &s.config
	policy := &authn.PeerPolicy{Open: c.Insecure}
	if s.tls != nil {
		switch {
		case c.SecretFile != "":
			return nil, errors.New("with TLS servers are known by their certificates, and not by a " +
				"cluster secret: leave out --secret-file")
		case s.tls.IdentifiesPeers():
			policy.Certificate = s.tls.IsPeer
		case !c.Insecure && !c.onOwnNetwork() && !loopback(c.Listen):
			return nil, fmt.Errorf("whoever reaches %s could speak as a server of this cluster: servers "+
				"show no certificates to each other. Give --tls-ca or --tls-peer-ca; or --insecure, if "+
				"only servers that you trust reach it", c.Listen)
		default:
			policy.Open = true
		}
		return policy, nil
	}
	secret, err := s.secret()
	switch {
	case err != nil:
		return nil, err
	case len(secret) > 0:
		policy.Secret = secret
	case !c.Insecure && !c.onOwnNetwork() && !loopback(c.Listen):
		return nil, fmt.Errorf("whoever reaches %s could speak as a server of this cluster. Give "+
			"--tls-cert, --tls-key and --tls-ca; or --secret-file, the same on all servers "+
			"(`tidemark secret` makes one); or --insecure, if only servers that you trust reach it",
			c.Listen)
	default:
		policy.Open = true
	}
	return policy, nil
}

// onOwnNetwork says that the server is not on the system's network, but on a test's.
func (c *ServerConfig) onOwnNetwork() bool { return c.Dial != nil }

// secret is the cluster's; empty: there is none.
func (s *Server) secret() (transport.Secret, error) {
	c := &s.config
	if c.SecretFile != "" {
		if readable(c.SecretFile) {
			c.Logger.Warn("others than its owner may read the cluster secret", "file", c.SecretFile)
		}
		return readSecret(c.SecretFile)
	}
	path := filepath.Join(c.Dir, secretName)
	secret, err := readSecret(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return secret, err
	case !c.foundsAlone() || c.Insecure || c.onOwnNetwork() || loopback(c.Listen) ||
		s.cluster.Load() != 0:
		return nil, nil
	}
	if err := makeSecret(path); err != nil {
		return nil, fmt.Errorf("the cluster secret: %w", err)
	}
	c.Logger.Info("made the secret of this cluster; servers that are to join it need a copy, as "+
		"--secret-file", "file", path)
	return readSecret(path)
}

// clusterSecret is the file with the secret of a cluster that one process runs. It is made if it is
// not there.
func clusterSecret(dir string) (path string, err error) {
	path = filepath.Join(dir, secretName)
	if _, err = os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o750); err == nil {
			err = makeSecret(path)
		}
	}
	if err != nil {
		return "", fmt.Errorf("the cluster secret: %w", err)
	}
	return path, nil
}

// makeSecret makes a file with a new secret, which only its owner may read. A crash leaves all of
// it or none.
func makeSecret(path string) error {
	fresh := path + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(NewSecret())
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err == nil {
		err = syncDir(vfs.Default, filepath.Dir(path))
	}
	return err
}

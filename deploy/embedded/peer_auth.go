package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"

	"github.com/tidemarkdb/tidemark/deploy/embedded/clustersecret"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// Which callers are taken for servers of the cluster. With TLS a certificate says it
// (authn.PeerRule), without TLS that the caller knows the cluster's secret. A server that has
// neither listens on this machine alone, unless it is told to trust its network.

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
		if clustersecret.ReadableByOthers(c.SecretFile) {
			c.Logger.Warn("others than its owner may read the cluster secret", "file", c.SecretFile)
		}
		return clustersecret.Read(c.SecretFile)
	}
	path := filepath.Join(c.Dir, clustersecret.FileName)
	secret, err := clustersecret.Read(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return secret, err
	case !c.foundsAlone() || c.Insecure || c.onOwnNetwork() || loopback(c.Listen) ||
		s.cluster.Load() != 0:
		return nil, nil
	}
	if err := clustersecret.Make(path); err != nil {
		return nil, fmt.Errorf("the cluster secret: %w", err)
	}
	c.Logger.Info("made the secret of this cluster; servers that are to join it need a copy, as "+
		"--secret-file", "file", path)
	return clustersecret.Read(path)
}

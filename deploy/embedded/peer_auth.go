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

// peerPolicy says by what a server knows other servers, and has the secret that the server proves
// to know. It makes the secret of a cluster that the server founds by itself. files are nil without
// TLS; founded says that the server has a cluster.
func peerPolicy(
	c *ServerConfig, files *authn.TLSFiles, founded bool,
) (*authn.PeerPolicy, error) {
	policy := &authn.PeerPolicy{Open: c.Insecure}
	if files != nil {
		switch {
		case c.SecretFile != "":
			return nil, errors.New("with TLS servers are known by their certificates, and not by a " +
				"cluster secret: leave out --secret-file")
		case files.IdentifiesPeers():
			policy.Certificate = files.IsPeer
		case !c.Insecure && !c.onOwnNetwork() && !loopback(c.Listen):
			return nil, fmt.Errorf("whoever reaches %s could speak as a server of this cluster: servers "+
				"show no certificates to each other. Give --tls-ca or --tls-peer-ca; or --insecure, if "+
				"only servers that you trust reach it", c.Listen)
		default:
			policy.Open = true
		}
		return policy, nil
	}
	secret, err := clusterSecret(c, founded)
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

// clusterSecret reads the cluster's secret; empty: there is none.
func clusterSecret(c *ServerConfig, founded bool) (transport.Secret, error) {
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
		founded:
		return nil, nil
	}
	if err := clustersecret.Make(path); err != nil {
		return nil, fmt.Errorf("the cluster secret: %w", err)
	}
	c.Logger.Info("made the secret of this cluster; servers that are to join it need a copy, as "+
		"--secret-file", "file", path)
	return clustersecret.Read(path)
}

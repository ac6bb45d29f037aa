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

// This file decides which callers are accepted as servers of the cluster. With TLS, the certificate
// proves it (authn.PeerRule). Without TLS, the knowledge of the cluster's secret proves it. A
// server with neither listens only on its own machine, unless it is told to trust its network.

// loopback reports whether only this machine can reach an address.
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

// peerPolicy returns the policy by which a server recognizes other servers, with the secret that
// the server itself uses as a proof. It creates the secret of a cluster that the server founds
// alone. files are nil without TLS. founded is set if the server has a cluster.
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

// clusterSecret reads the cluster's secret. It is empty if there is none.
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

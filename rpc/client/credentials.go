package client

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// clientCredentials calls for the configuration at each connection, because its files may have
// changed.
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

// showing returns a configuration with which a client sends its certificate even to a server that
// asks for those of other authorities. The server then says that it does not know the authority.
// Otherwise package tls would send none, and the server would say that a certificate is missing.
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

package rpc

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// clientCredentials asks for the configuration anew for each connection, since the files behind it
// may have changed.
type clientCredentials struct {
	credentials.TransportCredentials
	current func() *tls.Config
}

func newClientCredentials(current func() *tls.Config) credentials.TransportCredentials {
	return clientCredentials{credentials.NewTLS(current()), current}
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials {
	return clientCredentials{c.TransportCredentials.Clone(), c.current}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.current()).ClientHandshake(ctx, authority, conn)
}

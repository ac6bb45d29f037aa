package rpc

import (
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/limit"
)

// doorCredentials recognize servers when the handshake of a gRPC connection is over: servers'
// connections take no places from other hosts, and do not count.
type doorCredentials struct {
	credentials.TransportCredentials
	policy *authn.PeerPolicy
	in     *limit.RecvBudget
}

// Clone implements credentials.TransportCredentials.
func (d doorCredentials) Clone() credentials.TransportCredentials {
	return doorCredentials{d.TransportCredentials.Clone(), d.policy, d.in}
}

// ServerHandshake implements credentials.TransportCredentials.
func (d doorCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := d.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	if server, ok := d.policy.Recognize(info, conn); ok {
		limit.Exempt(raw)
		return conn, server, nil
	}
	return d.in.Watch(conn, raw), info, nil
}

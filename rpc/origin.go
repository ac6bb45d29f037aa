package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// origin is what is known of the other side of a client's connection by the connection alone.
type origin struct {
	// address is for people.
	address, party string
	// certificateName is the common name of the certificate, if that was verified; "" without.
	certificateName string
	// peer is the same as gRPC has it, for the handlers of calls.
	peer *peer.Peer
	// server says why the other side is not known as a server; nil if it is. done is called when the
	// connection has ended.
	server func() (done func(), err error)
}

// originOfConn is that of a connection of package transport.
func (s *Server) originOfConn(c *transport.Conn) origin {
	return origin{address: c.RemoteAddr().String(), party: authn.Principal(c.TLS(), c.RemoteAddr()),
		certificateName: authn.CertificateName(c.TLS()), peer: peerOfConn(c),
		server: func() (func(), error) { return s.peers.AdmitConn(c) }}
}

// originOfCall is that of a gRPC call. Servers do not bring requests that way.
func originOfCall(ctx context.Context) origin {
	o := origin{party: authn.PrincipalOfCall(ctx),
		certificateName: authn.CertificateName(authn.TLSOfCall(ctx)),
		server: func() (func(), error) {
			return nil, status.Error(codes.PermissionDenied, "a call of gRPC is none of a server: leave "+
				"out Hello.server")
		}}
	o.peer = &peer.Peer{}
	if from, ok := peer.FromContext(ctx); ok {
		o.peer = from
		if from.Addr != nil {
			o.address = from.Addr.String()
		}
	}
	return o
}

// peerOfConn is the other side of a connection of package transport as gRPC has it.
func peerOfConn(c *transport.Conn) *peer.Peer {
	p := &peer.Peer{Addr: c.RemoteAddr(), LocalAddr: c.Raw().LocalAddr()}
	if state := c.TLS(); state != nil {
		p.AuthInfo = credentials.TLSInfo{State: *state, CommonAuthInfo: credentials.CommonAuthInfo{
			SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	return p
}

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

// origin describes the other side of a client's connection, as far as the connection alone shows.
type origin struct {
	// address is for display.
	address, party string
	// certificateName is the common name of a verified certificate; "" if there is none.
	certificateName string
	// peer is the same in gRPC's form, for the handlers of calls.
	peer *peer.Peer
	// server returns an error if the other side has not proved to be a server. done is called when
	// the connection has ended.
	server func() (done func(), err error)
}

// originOfConn returns the origin of a connection of package transport.
func (s *Server) originOfConn(c *transport.Conn) origin {
	return origin{address: c.RemoteAddr().String(), party: authn.Principal(c.TLS(), c.RemoteAddr()),
		certificateName: authn.CertificateName(c.TLS()), peer: peerOfConn(c),
		server: func() (func(), error) { return s.peers.AdmitConn(c) }}
}

// originOfCall returns the origin of a gRPC call. Servers do not send requests by gRPC.
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

// peerOfConn returns the other side of a connection of package transport in gRPC's form.
func peerOfConn(c *transport.Conn) *peer.Peer {
	p := &peer.Peer{Addr: c.RemoteAddr(), LocalAddr: c.Raw().LocalAddr()}
	if state := c.TLS(); state != nil {
		p.AuthInfo = credentials.TLSInfo{State: *state, CommonAuthInfo: credentials.CommonAuthInfo{
			SecurityLevel: credentials.PrivacyAndIntegrity}}
	}
	return p
}

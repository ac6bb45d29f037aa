package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// A party is one of those among which a server shares what it has (package quota): the subject of a
// certificate that was verified, or else a host. All processes with one certificate, or one
// address, are one party.

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
	return origin{address: c.RemoteAddr().String(), party: partyOfConn(c),
		certificateName: certificateName(c.TLS()), peer: peerOfConn(c),
		server: func() (func(), error) { return s.peers.admitConn(c) }}
}

// originOfCall is that of a gRPC call. Servers do not bring requests that way.
func originOfCall(ctx context.Context) origin {
	o := origin{party: partyOfCall(ctx), certificateName: certificateName(TLSOfCall(ctx)),
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

// certificateName is the common name of a certificate that was verified; "" if there is none.
func certificateName(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	return state.VerifiedChains[0][0].Subject.CommonName
}

// partyOfConn is the party on the other side of a connection.
func partyOfConn(c *transport.Conn) string { return party(c.TLS(), c.RemoteAddr()) }

// PartyOfCall names the party that makes a gRPC call; "" if nothing is known of it.
func PartyOfCall(ctx context.Context) string { return partyOfCall(ctx) }

// partyOfCall is the party that makes a gRPC call.
func partyOfCall(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if f, ok := from.AuthInfo.(Forwarded); ok && f.Party != "" {
		return f.Party
	}
	return party(TLSOfCall(ctx), from.Addr)
}

// TLSOfCall is the TLS connection that a gRPC call came on; nil if it came without TLS. It is not
// to be changed.
func TLSOfCall(ctx context.Context) *tls.ConnectionState {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info := from.AuthInfo
	if server, ok := info.(serverInfo); ok {
		info = server.AuthInfo
	}
	if info, ok := info.(credentials.TLSInfo); ok {
		return &info.State
	}
	return nil
}

// Party names the party that speaks on a connection; state is nil without TLS.
func Party(state *tls.ConnectionState, address net.Addr) string { return party(state, address) }

// party names a party; state is nil without TLS.
func party(state *tls.ConnectionState, address net.Addr) string {
	if state != nil && len(state.VerifiedChains) > 0 {
		return "certificate " + state.VerifiedChains[0][0].Subject.String()
	}
	return partyOfAddress(address)
}

// partyOfAddress is the host of an address; of IPv6 its network of 64 bits, all of which one host
// may have.
func partyOfAddress(address net.Addr) string {
	if address == nil {
		return ""
	}
	from, err := netip.ParseAddrPort(address.String())
	if err != nil {
		if host, _, err := net.SplitHostPort(address.String()); err == nil {
			return host
		}
		return address.String()
	}
	ip := from.Addr().Unmap()
	if ip.Is6() {
		network, err := ip.WithZone("").Prefix(64)
		if err == nil {
			return network.String()
		}
	}
	return ip.String()
}

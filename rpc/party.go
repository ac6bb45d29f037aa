package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// A party is one of those among which a server shares what it has (package quota): the subject of a
// certificate that was verified, or else a host. All processes with one certificate, or one
// address, are one party.

// partyOfConn is the party on the other side of a connection.
func partyOfConn(c *transport.Conn) string { return party(c.TLS(), c.RemoteAddr()) }

// partyOfCall is the party that makes a gRPC call.
func partyOfCall(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	return party(TLSOfCall(ctx), from.Addr)
}

// TLSOfCall is the TLS connection that a gRPC call came on; nil if it came without TLS. It is not to
// be changed.
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

package authn

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// A principal is one of the parties among which a server shares its resources (package quota): the
// subject of a verified certificate, or else a host. All processes with one certificate, or one
// address, are one principal.

// CertificateName returns the common name of a verified certificate; "" if there is none.
func CertificateName(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	return state.VerifiedChains[0][0].Subject.CommonName
}

// PrincipalOfCall returns the principal that makes a gRPC call; "" if it is unknown.
func PrincipalOfCall(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if f, ok := from.AuthInfo.(Forwarded); ok && f.Principal != "" {
		return f.Principal
	}
	return Principal(TLSOfCall(ctx), from.Addr)
}

// TLSOfCall returns the state of the TLS connection of a gRPC call; nil without TLS. It must not be
// changed.
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

// Principal returns the principal at the other side of a connection; state is nil without TLS.
func Principal(state *tls.ConnectionState, address net.Addr) string {
	if state != nil && len(state.VerifiedChains) > 0 {
		return "certificate " + state.VerifiedChains[0][0].Subject.String()
	}
	return PrincipalOfAddress(address)
}

// PrincipalOfAddress returns the host of an address; for IPv6 its /64 network, all of whose
// addresses one host may have.
func PrincipalOfAddress(address net.Addr) string {
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

// Forwarded identifies the client of a call that another server passes on, as named by that server.
// It replaces the result of the handshake in peer.Peer.AuthInfo, which identifies the server that
// passes the call on. It must only be made from the words of a server that has proved to be one
// (PeerPolicy.Proved).
type Forwarded struct {
	// Principal is the client's (see Principal); "" if it is unknown.
	Principal string
	// CommonName is the common name of the client's certificate, which the server has verified; ""
	// without one.
	CommonName string
}

// AuthType implements credentials.AuthInfo.
func (Forwarded) AuthType() string { return "forwarded" }

// ForwardedOfCall returns the client of a call that another server passes on; false if the client
// itself has made the call.
func ForwardedOfCall(ctx context.Context) (Forwarded, bool) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return Forwarded{}, false
	}
	f, ok := from.AuthInfo.(Forwarded)
	return f, ok
}

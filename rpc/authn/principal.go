package authn

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// A principal is one of those among which a server shares what it has (package quota): the subject
// of a certificate that was verified, or else a host. All processes with one certificate, or one
// address, are one principal.

// CertificateName is the common name of a certificate that was verified; "" if there is none.
func CertificateName(state *tls.ConnectionState) string {
	if state == nil || len(state.VerifiedChains) == 0 {
		return ""
	}
	return state.VerifiedChains[0][0].Subject.CommonName
}

// PrincipalOfCall names the principal that makes a gRPC call; "" if nothing is known of it.
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

// Principal names the principal that speaks on a connection; state is nil without TLS.
func Principal(state *tls.ConnectionState, address net.Addr) string {
	if state != nil && len(state.VerifiedChains) > 0 {
		return "certificate " + state.VerifiedChains[0][0].Subject.String()
	}
	return PrincipalOfAddress(address)
}

// PrincipalOfAddress is the host of an address; of IPv6 its network of 64 bits, all of which one
// host may have.
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

// Forwarded is the client of a call that another server passes on, as that server names the client.
// It stands in peer.Peer.AuthInfo in place of what the handshake of the connection has shown: that
// is of the server which passes the call on. It must only be made of what a server has said that
// has proved to be one (PeerPolicy.Proved).
type Forwarded struct {
	// Principal is the client's (see Party); "" if it is not known.
	Principal string
	// CommonName is that of the client's certificate, which the server has verified; "" without one.
	CommonName string
}

// AuthType implements credentials.AuthInfo.
func (Forwarded) AuthType() string { return "forwarded" }

// ForwardedOfCall is the client of a call that another server passes on; false: the client itself
// has made the call.
func ForwardedOfCall(ctx context.Context) (Forwarded, bool) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return Forwarded{}, false
	}
	f, ok := from.AuthInfo.(Forwarded)
	return f, ok
}

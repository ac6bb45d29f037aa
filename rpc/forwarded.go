package rpc

import (
	"context"

	"google.golang.org/grpc/peer"
)

// Forwarded is the client of a call that another server passes on, as that server names the client.
// It stands in peer.Peer.AuthInfo in place of what the handshake of the connection has shown: that
// is of the server which passes the call on. It must only be made of what a server has said that has
// proved to be one (PeerPolicy.Proved).
type Forwarded struct {
	// Party is the client's (see Party); "" if it is not known.
	Party string
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

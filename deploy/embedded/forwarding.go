package embedded

import (
	"context"
	"net"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/forward"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A server without a part of the coordination store passes calls of the etcd API on to a member of
// the core (package forward). The call says who the client is: by the token that came with it, or
// by what the server knows of the client's connection. The member believes the latter only of
// callers that have proved to be servers. A caller that says that it passes a call on, and has
// proved nothing, is no user by its certificate: that certificate is not the client's.

// Fields of the metadata of a call that is passed on, beside certificateField.
const (
	// partyField is the principal with which the client shares bounds (authn.Principal).
	partyField = "tidemark-party-bin"
	// addressField is the client's address, for logs.
	addressField = "tidemark-address-bin"
)

// passedFields are the fields of the client's metadata that mean something to a member.
var passedFields = []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger,
	rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataClientAPIVersionKey}

// maxForwardedPerConnection is the most that a connection to a member has of calls that are passed
// on; see forward.Config.
const maxForwardedPerConnection = 512

// newForwarder makes what passes calls of the etcd API on.
func (s *Server) newForwarder(peers *authn.PeerPolicy) *forward.Forwarder {
	perConnection := maxForwardedPerConnection
	if most := int(s.config.MaxStreams); most > 0 { // as the other servers have it
		perConnection = max(1, min(perConnection, most*3/4))
	}
	config := client.DialerConfig{Dial: s.config.Dial, Secret: peers.Secret,
		StreamWindow: wire.LeastStreamWindow, Logger: s.config.Logger}
	if s.tls != nil {
		config.TLSNow = s.tls.Client
	}
	return forward.New(forward.Config{
		Members:   s.otherMembers,
		Dialer:    func() *client.Dialer { return client.NewDialer(config) },
		Local:     s.services.etcd.own,
		Forwarded: coreclient.IsForwarded, Outgoing: s.forwarded,
		Refusal: s.noCoordination, Party: authn.PrincipalOfCall, Answers: s.answers,
		PerConnection: perConnection, Random: s.config.Random, Registry: prom.Registry(s.config.Registry),
		Bytes: s.memory.Forwarded,
	})
}

// otherMembers lists the members of the core that this server knows of, but for itself.
func (s *Server) otherMembers() []string {
	var others []string
	for _, address := range s.coreList() {
		if address != s.config.Advertise {
			others = append(others, address)
		}
	}
	return others
}

// forwarded is the context of a call that is passed on for a client.
func (s *Server) forwarded(ctx context.Context) context.Context {
	shown := metadata.MD{}
	given, _ := metadata.FromIncomingContext(ctx)
	for _, field := range passedFields {
		if values := given.Get(field); len(values) > 0 {
			shown[field] = values
		}
	}
	if s.config.TLSCA != "" {
		if name, ok := authorize.CommonName(ctx, authn.TLSOfCall(ctx)); ok {
			shown.Set(certificateField, name)
		}
	}
	if party := authn.PrincipalOfCall(ctx); party != "" {
		shown.Set(partyField, party)
	}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		shown.Set(addressField, from.Addr.String())
	}
	return coreclient.Forwarded(metadata.NewOutgoingContext(ctx, shown))
}

// errStale is what a server hears that passes a call on with a certificate of yesterday.
var errStale = status.Error(codes.Unavailable, "connect again with the certificate of today")

// clientOfCall is the context of a call with what is known of its client: of one that is passed on,
// what the server says that passes the call on. A call on a connection that a server has made with
// a certificate which counts no more is refused: nobody could vouch for the client.
func (s *Server) clientOfCall(ctx context.Context) (context.Context, error) {
	if !coreclient.IsForwarded(ctx) {
		return ctx, nil
	}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	if s.auth.peers.Stale(ctx) {
		return nil, errStale
	}
	client, is := *from, authn.Forwarded{}
	if s.auth.provable() && s.auth.peers.Proved(ctx) == nil {
		is.CommonName, is.Principal = firstOf(ctx, certificateField), firstOf(ctx, partyField)
		if address := firstOf(ctx, addressField); address != "" {
			client.Addr = clientAddress{from.Addr, strings.ToValidUTF8(address, "?")}
		}
	}
	client.AuthInfo = is
	return peer.NewContext(ctx, &client), nil
}

// passedOnFor says for which party a server passes a call on (rpc.ServerConfig.PassedOn). A caller
// that has not proved to be a server may say that it passes a call on, and names nobody.
func (s *Server) passedOnFor(ctx context.Context) (party string, ok bool) {
	if !coreclient.IsForwarded(ctx) {
		return "", false
	}
	if s.auth.provable() && s.auth.peers.Proved(ctx) == nil {
		party = firstOf(ctx, partyField)
	}
	return party, true
}

// firstOf is the first value of a field of a call's metadata; "" without one.
func firstOf(ctx context.Context, field string) string {
	if values := metadata.ValueFromIncomingContext(ctx, field); len(values) > 0 {
		return values[0]
	}
	return ""
}

// clientAddress is the address of a client, as another server has seen it.
type clientAddress struct {
	net.Addr // of that server
	text     string
}

// String implements net.Addr.
func (a clientAddress) String() string { return a.text }

package passedon

import (
	"context"
	"crypto/tls"
	"net"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/callspans"
)

// Fields of the metadata of a call. Only TokenField is set by clients.
const (
	// TokenField has a user's token.
	TokenField = "token"
	// certificateField has the common name of the client's certificate.
	certificateField = "tidemark-certificate-bin"
	// partyField has the principal with which the client shares bounds (authn.Principal).
	partyField = "tidemark-party-bin"
	// addressField has the client's address, for logs.
	addressField = "tidemark-address-bin"
)

// passedFields lists the fields of the client's metadata that concern a member.
var passedFields = append([]string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger,
	rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataClientAPIVersionKey}, callspans.Fields...)

// Clients identifies the clients of forwarded calls, to other servers and to this one.
type Clients struct {
	// Peers decides which callers have proved to be servers.
	Peers *authn.PeerPolicy
	// CertificateUsers is set if clients have certificates whose common names are users.
	CertificateUsers bool
}

// EtcdCall returns the context of a call of the etcd API that this server forwards.
func (c *Clients) EtcdCall(ctx context.Context) context.Context {
	shown := metadata.MD{}
	given, _ := metadata.FromIncomingContext(ctx)
	for _, field := range passedFields {
		if values := given.Get(field); len(values) > 0 {
			shown[field] = values
		}
	}
	if c.CertificateUsers {
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

// WithToken adds the token of the client's user to a call that this server forwards.
func WithToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, TokenField, token)
}

// WithClient adds the client's credentials, a token or a certificate's name, to a call that this
// server forwards.
func (c *Clients) WithClient(ctx context.Context) context.Context {
	if given := metadata.ValueFromIncomingContext(ctx, TokenField); len(given) > 0 {
		return WithToken(ctx, given[0])
	}
	state := authn.TLSOfCall(ctx)
	if !c.CertificateUsers || state == nil || len(state.VerifiedChains) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, certificateField,
		state.VerifiedChains[0][0].Subject.CommonName)
}

// TLS implements authorize.Callers.
func (c *Clients) TLS(ctx context.Context) *tls.ConnectionState { return authn.TLSOfCall(ctx) }

// Party implements authorize.Callers.
func (c *Clients) Party(ctx context.Context) string { return authn.PrincipalOfCall(ctx) }

// PassedOn implements authorize.Callers. It returns the common name of the client's certificate, as
// reported by the server that forwards the call. It returns false if the call comes from the client
// itself.
func (c *Clients) PassedOn(ctx context.Context) (string, bool) {
	if client, ok := authn.ForwardedOfCall(ctx); ok {
		return client.CommonName, true
	}
	if !coreclient.IsForwarded(ctx) {
		return "", false
	}
	if !c.fromServer(ctx) {
		return "", true // the connection's certificate is not the client's
	}
	return First(ctx, certificateField), true
}

// errStale refuses a forwarded call on a connection whose certificate has changed or expired since.
var errStale = status.Error(codes.Unavailable, "connect again with the certificate of today")

// OfCall adds the known facts about a call's client to the context of the call. For a forwarded
// call, the forwarding server reports these facts. OfCall refuses a call on a connection that a
// server has opened with a certificate which is no longer valid, because nobody vouches for the
// client.
func (c *Clients) OfCall(ctx context.Context) (context.Context, error) {
	if !coreclient.IsForwarded(ctx) {
		return ctx, nil
	}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	if c.Peers.Stale(ctx) {
		return nil, errStale
	}
	client, is := *from, authn.Forwarded{}
	if c.fromServer(ctx) {
		is.CommonName, is.Principal = First(ctx, certificateField), First(ctx, partyField)
		if address := First(ctx, addressField); address != "" {
			client.Addr = clientAddress{from.Addr, strings.ToValidUTF8(address, "?")}
		}
	}
	client.AuthInfo = is
	return peer.NewContext(ctx, &client), nil
}

// ForwardedFor returns the principal for which a server forwards a call
// (rpc.ServerConfig.PassedOn). It returns false if the call comes from the client itself. If a
// caller that has not proved to be a server claims to forward a call, the principal is "".
func (c *Clients) ForwardedFor(ctx context.Context) (party string, ok bool) {
	if !coreclient.IsForwarded(ctx) {
		return "", false
	}
	if c.fromServer(ctx) {
		party = First(ctx, partyField)
	}
	return party, true
}

// fromServer reports whether the caller has proved to be a server.
func (c *Clients) fromServer(ctx context.Context) bool {
	return c.Peers.Provable() && c.Peers.Proved(ctx) == nil
}

// First returns the first value of a field in a call's metadata. It returns "" if there is none.
func First(ctx context.Context, field string) string {
	if values := metadata.ValueFromIncomingContext(ctx, field); len(values) > 0 {
		return values[0]
	}
	return ""
}

// clientAddress is the address of a client, as another server has reported it.
type clientAddress struct {
	net.Addr // the address of that server
	text     string
}

// String implements net.Addr.
func (a clientAddress) String() string { return a.text }

package etcdapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// The user of a call is named by the token in its metadata or, without one and with
// Config.CertificateUsers, by the common name of its certificate, as in etcd. It counts only while
// authentication is enabled.

// identity is the user of a call.
type identity struct {
	// info is never nil. Without a revision, it is a client that has named no user.
	info *storepb.AuthInfo
	// certificate: the user is the name of a certificate.
	certificate bool
}

var noUser = &storepb.AuthInfo{}

// identify says which user makes a call, by what this member knows, and that the token is valid.
func (b *backend) identify(ctx context.Context) (*storepb.AuthInfo, error) {
	id, err := b.identityOf(ctx)
	if c := callOf(ctx); c != nil {
		c.note(id)
	}
	return id.info, err
}

func (b *backend) identityOf(ctx context.Context) (identity, error) {
	state := b.Store.Authority()
	if !state.Enabled() {
		return identity{info: noUser}, nil
	}
	if text, given := tokenOf(ctx); given {
		user, revision, err := b.verify(ctx, text)
		if err != nil {
			return identity{info: noUser}, err
		}
		return identity{info: &storepb.AuthInfo{User: user, Revision: revision}}, nil
	}
	if b.CertificateUsers {
		name, ok := b.PassedOn(ctx)
		if ok {
			ok = name != "" // the certificate of the call is that of the server that passes it on
		} else {
			name, ok = CommonName(ctx, b.TLS(ctx))
		}
		if ok {
			return identity{&storepb.AuthInfo{User: name, Revision: state.Revision()}, true}, nil
		}
	}
	return identity{info: noUser}, nil
}

// tokenOf is the token that came with a call. The field for gRPC precedes that of HTTP gateways.
func tokenOf(ctx context.Context) (text string, given bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, field := range []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger} {
		if values := md.Get(field); len(values) > 0 {
			return strings.TrimPrefix(values[0], "Bearer "), true
		}
	}
	return "", false
}

// verify says which user a token is of, and by which revision of users and roles. A token that was
// made by a member that has applied more than this one is judged again when this one has caught up.
func (b *backend) verify(
	ctx context.Context, text string,
) (user string, revision uint64, err error) {
	token, err := authority.ParseToken(text)
	if err != nil {
		return "", 0, rpctypes.ErrGRPCInvalidAuthToken
	}
	behind := token.Index > b.Store.AppliedIndex()
	state := b.Store.Authority()
	if err = state.Verify(token); err != nil && behind {
		if err := b.confirm(ctx); err != nil {
			return "", 0, err
		}
		state = b.Store.Authority()
		err = state.Verify(token)
	}
	if err != nil || !b.uses.use(token) {
		return "", 0, rpctypes.ErrGRPCInvalidAuthToken
	}
	return token.User, state.Revision(), nil
}

// tlsOf is the TLS connection that a call came on; nil if there is none.
func tlsOf(ctx context.Context) *tls.ConnectionState {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if info, ok := from.AuthInfo.(credentials.TLSInfo); ok {
		return &info.State
	}
	return nil
}

// CommonName is that of the verified certificate of a call's client. A call of an HTTP gateway,
// this server's (package gateway) or another one, has none: there a certificate names no user, as
// in etcd. false: there is none.
func CommonName(ctx context.Context, state *tls.ConnectionState) (string, bool) {
	md, ok := metadata.FromIncomingContext(ctx)
	if state == nil || !ok || len(md.Get("grpcgateway-accept")) > 0 {
		return "", false
	}
	for _, chain := range state.VerifiedChains {
		if len(chain) > 0 {
			return chain[0].Subject.CommonName, true
		}
	}
	return "", false
}

// hostOf is the host that a call came from.
func hostOf(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return ""
	}
	if host, _, err := net.SplitHostPort(from.Addr.String()); err == nil {
		return host
	}
	return from.Addr.String()
}

// permit says on whose behalf a call does something, if check, by users and roles as this member
// knows them, does not refuse it. A refusal counts only when this member is up to date.
func (b *backend) permit(
	ctx context.Context, check func(*authority.State, *storepb.AuthInfo) error,
) (*storepb.AuthInfo, error) {
	who, err := b.permitted(ctx, check)
	if err == nil || !isRefusal(err) {
		return who, b.toGRPC(ctx, err)
	}
	if err := b.confirm(ctx); err != nil {
		return nil, err
	}
	who, err = b.permitted(ctx, check)
	return who, b.toGRPC(ctx, err)
}

// permitted is permit by what this member knows now.
func (b *backend) permitted(
	ctx context.Context, check func(*authority.State, *storepb.AuthInfo) error,
) (*storepb.AuthInfo, error) {
	who, err := b.identify(ctx)
	if err != nil {
		return nil, err
	}
	return who, check(b.Store.Authority(), who)
}

// isRefusal says whether an error is one that other users and roles could have avoided.
func isRefusal(err error) bool {
	refused := (*authority.Error)(nil)
	return errors.As(err, &refused) || errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken)
}

// administer refuses all clients but administrators.
func (b *backend) administer(ctx context.Context) (*storepb.AuthInfo, error) {
	return b.permit(ctx, (*authority.State).Admin)
}

// identified refuses clients that name no user.
func (b *backend) identified(ctx context.Context) (*storepb.AuthInfo, error) {
	return b.permit(ctx, (*authority.State).Identified)
}

// identifiedNow is identified for what is answered as of everything that was acknowledged before
// the call. After it this member is up to date.
func (b *backend) identifiedNow(ctx context.Context) (*storepb.AuthInfo, error) {
	if err := b.confirm(ctx); err != nil {
		return nil, err
	}
	who, err := b.permitted(ctx, (*authority.State).Identified)
	return who, b.toGRPC(ctx, err)
}

// unchanged refuses what was checked by users and roles that are no more.
func (b *backend) unchanged(before *authority.State) error {
	now := b.Store.Authority()
	if now.Enabled() && (!before.Enabled() || now.Revision() != before.Revision()) {
		return rpctypes.ErrGRPCAuthOldRevision
	}
	return nil
}

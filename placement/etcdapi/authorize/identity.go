package authorize

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// identity is the user of a call.
type identity struct {
	// info is never nil. Without a revision, it stands for a client that has named no user.
	info *storepb.AuthInfo
	// certificate is set if the user is the name of a certificate.
	certificate bool
}

var noUser = &storepb.AuthInfo{}

// Identify returns the user that makes a call, as this member knows users, and checks the token.
func (a *Authorizer) Identify(ctx context.Context) (*storepb.AuthInfo, error) {
	id, err := a.identityOf(ctx)
	callOf(ctx).note(id)
	return id.info, err
}

func (a *Authorizer) identityOf(ctx context.Context) (identity, error) {
	state := a.Store.Authority()
	if !state.Enabled() {
		return identity{info: noUser}, nil
	}
	if text, given := tokenOf(ctx); given {
		user, revision, err := a.verify(ctx, text)
		if err != nil {
			return identity{info: noUser}, err
		}
		return identity{info: &storepb.AuthInfo{User: user, Revision: revision}}, nil
	}
	if a.certificateUsers {
		name, ok := a.PassedOn(ctx)
		if ok {
			ok = name != "" // the connection's certificate is another server's
		} else {
			name, ok = CommonName(ctx, a.TLS(ctx))
		}
		if ok {
			return identity{&storepb.AuthInfo{User: name, Revision: state.Revision()}, true}, nil
		}
	}
	return identity{info: noUser}, nil
}

// tokenOf returns the token of a call. gRPC's field takes precedence over that of HTTP gateways.
func tokenOf(ctx context.Context) (text string, given bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, field := range []string{rpctypes.TokenFieldNameGRPC, rpctypes.TokenFieldNameSwagger} {
		if values := md.Get(field); len(values) > 0 {
			return strings.TrimPrefix(values[0], "Bearer "), true
		}
	}
	return "", false
}

// verify returns the user of a token, and the revision of users and roles. A token made by a member
// that has applied more than this one is checked again when this one has caught up.
func (a *Authorizer) verify(
	ctx context.Context, text string,
) (user string, revision uint64, err error) {
	token, err := authority.ParseToken(text)
	if err != nil {
		return "", 0, rpctypes.ErrGRPCInvalidAuthToken
	}
	behind := token.Index > a.Store.AppliedIndex()
	state := a.Store.Authority()
	if err = state.Verify(token); err != nil && behind {
		if err := a.Confirm(ctx); err != nil {
			return "", 0, err
		}
		state = a.Store.Authority()
		err = state.Verify(token)
	}
	if err != nil || !a.uses.use(token) {
		return "", 0, rpctypes.ErrGRPCInvalidAuthToken
	}
	return token.User, state.Revision(), nil
}

// TokenFor returns a token by which another member identifies a client that this member has
// identified; empty if the client is not authenticated.
func (a *Authorizer) TokenFor(ctx context.Context, who *storepb.AuthInfo) string {
	if text, given := tokenOf(ctx); given {
		return text
	}
	state := a.Store.Authority()
	login, known := state.Login(who.User)
	if !state.Enabled() || !known {
		return ""
	}
	return a.Sign(state, who.User, login.Generation)
}

// Sign makes a token for a user with this generation in state.
func (a *Authorizer) Sign(state *authority.State, user string, generation uint64) string {
	return state.Sign(authority.Token{User: user, Generation: generation,
		Index: a.Store.AppliedIndex(), Issued: a.now()})
}

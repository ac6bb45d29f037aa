package authorize

import (
	"context"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
)

// Administration serves a call of another service that only administrators may make, for a client
// identified as in the etcd API. It calls do if the client's user has the role root, or
// authentication is disabled, according to the present users and roles. The result is audited, with
// the method's full name. token is the token by which another member identifies the client; empty
// if the client is not authenticated.
func (a *Authorizer) Administration(
	ctx context.Context, method string, request any,
	do func(ctx context.Context, token string) (any, error),
) (any, error) {
	return a.judged(ctx, &Call{Method: method, Request: request, administers: true}, func(
		ctx context.Context,
	) (any, error) {
		token, err := a.administrator(ctx)
		if err != nil {
			return nil, err
		}
		return do(ctx, token)
	})
}

// judged has the result of a call audited.
func (a *Authorizer) judged(
	ctx context.Context, c *Call, do func(context.Context) (any, error),
) (any, error) {
	ctx = WithCall(ctx, c)
	answer, err := do(ctx)
	a.Audit(ctx, c, err)
	return answer, err
}

// OfKeyspace describes a call of another service about a keyspace.
type OfKeyspace struct {
	// Method is its full name, and Request its request.
	Method  string
	Request any
	// Rights are the rights that it needs, of package authority, for the whole keyspace.
	Rights uint32
	// Administers is set if every result is audited, not only refusals.
	Administers bool
	// ID returns the keyspace's id.
	ID func(context.Context) (uint64, error)
}

// ForKeyspace serves a call of another service that users may make who have certain rights for a
// keyspace, or the role root. It calls do if the client's user has them, or authentication is
// disabled, according to the present users and roles. id is the keyspace for which the rights were
// checked.
func (a *Authorizer) ForKeyspace(
	ctx context.Context, of OfKeyspace,
	do func(ctx context.Context, id uint64) (any, error),
) (any, error) {
	return a.judged(ctx, &Call{Method: of.Method, Request: of.Request, administers: of.Administers},
		func(ctx context.Context) (any, error) {
			if err := a.newest(ctx); err != nil {
				return nil, err
			}
			who, err := a.Identify(ctx)
			if err != nil {
				return nil, err
			}
			id, err := of.ID(ctx)
			if err != nil {
				return nil, err
			}
			if state := a.Store.Authority(); state.Admin(who) != nil {
				if err := state.Identified(who); err != nil {
					return nil, translate.Error(ctx, err)
				}
				r := state.RightsOf(who.User)
				if r == nil || !r.May(of.Rights, id, nil, nil) {
					return nil, translate.Error(ctx, authority.ErrPermissionDenied)
				}
			}
			return do(ctx, id)
		})
}

// RightsOf returns what the caller of another service may do with keyspaces, according to the
// present users and roles. all is set if it may do everything, because authentication is disabled
// or the user has the role root. An error says that the caller has no right, or that its rights are
// unknown.
func (a *Authorizer) RightsOf(ctx context.Context) (rights *authority.Rights, all bool, err error) {
	if err := a.newest(ctx); err != nil {
		return nil, false, err
	}
	who, err := a.Identify(ctx)
	if err != nil {
		return nil, false, err
	}
	state := a.Store.Authority()
	if state.Admin(who) == nil {
		return nil, true, nil
	}
	if err := state.Identified(who); err != nil {
		return nil, false, err
	}
	if rights = state.RightsOf(who.User); rights == nil {
		return nil, false, authority.ErrPermissionDenied
	}
	return rights, false, nil
}

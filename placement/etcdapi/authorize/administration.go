package authorize

import (
	"context"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
)

// Administration does a call of another service that only administrators may make, for a client
// that is known as those of the etcd API are: do is called if its user has the role root, or
// authentication is disabled, by users and roles as they are now. What came of it is audited, with
// the method's full name. token is what another member knows the client by; empty if it is not
// authenticated.
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

// judged has what came of a call audited.
func (a *Authorizer) judged(
	ctx context.Context, c *Call, do func(context.Context) (any, error),
) (any, error) {
	ctx = WithCall(ctx, c)
	answer, err := do(ctx)
	a.Audit(ctx, c, err)
	return answer, err
}

// OfKeyspace is what a call of another service needs that is about a keyspace.
type OfKeyspace struct {
	// Method is its full name, and Request what it was called with.
	Method  string
	Request any
	// Rights are what it needs, of package authority, for the whole keyspace.
	Rights uint32
	// Administers: what came of it is audited, and not only that it is refused.
	Administers bool
	// ID finds the keyspace.
	ID func(context.Context) (uint64, error)
}

// ForKeyspace does a call of another service that users may make who have rights for a keyspace, or
// the role root. do is called if the client's user has them, or authentication is disabled, by
// users and roles as they are now. id is that of the keyspace for which it was judged.
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

// RightsOf returns what the caller of another service may do with keyspaces, by users and roles as
// they are now. all: everything, since authentication is disabled or the user has the role root. An
// error says that the caller has no right, or that it cannot be known.
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

package etcdapi

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Administration does a call of another service that only administrators may make, for a client
// that is known as those of the etcd API are: do is called if its user has the role root, or
// authentication is disabled, by users and roles as they are now. What came of it is audited, with
// the method's full name. token is what another member knows the client by; empty if it is not
// authenticated.
func (s *Services) Administration(
	ctx context.Context, method string, request any,
	do func(ctx context.Context, token string) (any, error),
) (any, error) {
	return s.judged(ctx, &call{method: method, request: request, administers: true}, func(
		ctx context.Context,
	) (any, error) {
		token, err := s.guard.backend.administrator(ctx)
		if err != nil {
			return nil, err
		}
		return do(ctx, token)
	})
}

// judged has what came of a call audited.
func (s *Services) judged(
	ctx context.Context, c *call, do func(context.Context) (any, error),
) (any, error) {
	ctx = withCall(ctx, c)
	answer, err := do(ctx)
	s.guard.backend.audit(ctx, c, err)
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
func (s *Services) ForKeyspace(
	ctx context.Context, of OfKeyspace,
	do func(ctx context.Context, id uint64) (any, error),
) (any, error) {
	b := s.guard.backend
	return s.judged(ctx, &call{method: of.Method, request: of.Request, administers: of.Administers},
		func(ctx context.Context) (any, error) {
			if err := b.newest(ctx); err != nil {
				return nil, err
			}
			who, err := b.identify(ctx)
			if err != nil {
				return nil, err
			}
			id, err := of.ID(ctx)
			if err != nil {
				return nil, err
			}
			if state := b.Store.Authority(); state.Admin(who) != nil {
				if err := state.Identified(who); err != nil {
					return nil, b.toGRPC(ctx, err)
				}
				r := state.RightsOf(who.User)
				if r == nil || !r.May(of.Rights, id, nil, nil) {
					return nil, b.toGRPC(ctx, authority.ErrPermissionDenied)
				}
			}
			return do(ctx, id)
		})
}

// RightsOf returns what the caller of another service may do with keyspaces, by users and roles as
// they are now. all: everything, since authentication is disabled or the user has the role root. An
// error says that the caller has no right, or that it cannot be known.
func (s *Services) RightsOf(ctx context.Context) (rights *authority.Rights, all bool, err error) {
	b := s.guard.backend
	if err := b.newest(ctx); err != nil {
		return nil, false, err
	}
	who, err := b.identify(ctx)
	if err != nil {
		return nil, false, err
	}
	state := b.Store.Authority()
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

// enoughToAsk is for how long a member that knows of no users asks whether there are any. Without a
// quorum the call says so itself.
const enoughToAsk = 250 * time.Millisecond

// administrator refuses clients that may not administer, and returns a token for those that may. It
// goes by what is committed anywhere. Only where users and roles were never changed, as far as this
// member knows, is it enough that it cannot be known.
func (b *backend) administrator(ctx context.Context) (token string, err error) {
	if err := b.newest(ctx); err != nil {
		return "", err
	}
	who, err := b.administer(ctx)
	if err != nil {
		return "", err
	}
	return b.tokenFor(ctx, who), nil
}

// newest has this member be up to date. Where users and roles were never changed, as far as it
// knows, it need not be known to be.
func (b *backend) newest(ctx context.Context) error {
	before := b.Store.Authority()
	if before.Enabled() || before.Revision() > 1 {
		return b.confirm(ctx)
	}
	if l, _ := b.Store.Leadership(); l.Leader != 0 {
		brief, cancel := context.WithTimeout(ctx, enoughToAsk)
		_, _ = b.Store.Read(brief)
		cancel()
	}
	return nil
}

// tokenFor is by what another member knows a client that this one has identified; empty if it is
// not authenticated.
func (b *backend) tokenFor(ctx context.Context, who *storepb.AuthInfo) string {
	if text, given := tokenOf(ctx); given {
		return text
	}
	state := b.Store.Authority()
	login, known := state.Login(who.User)
	if !state.Enabled() || !known {
		return ""
	}
	return state.Sign(authority.Token{User: who.User, Generation: login.Generation,
		Index: b.Store.AppliedIndex(), Issued: b.Now()})
}

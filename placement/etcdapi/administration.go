package etcdapi

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
)

// Administration does a call of another service that only administrators may make, for a client
// that is known as those of the etcd API are: do is called if its user has the role root, or
// authentication is disabled, by users and roles as they are now. What came of it is audited, with
// the method's full name. token is what another member knows the client by; empty if it has not
// said who it is.
func (s *Services) Administration(
	ctx context.Context, method string, request any,
	do func(ctx context.Context, token string) (any, error),
) (any, error) {
	b := s.guard.backend
	c := &call{method: method, request: request, administers: true}
	ctx = withCall(ctx, c)
	var answer any
	token, err := b.administrator(ctx)
	if err == nil {
		answer, err = do(ctx, token)
	}
	b.audit(ctx, c, err)
	return answer, err
}

// enoughToAsk is for how long a member that knows of no users asks whether there are any. Without a
// quorum the call says so itself.
const enoughToAsk = 250 * time.Millisecond

// administrator refuses clients that may not administer, and returns a token for those that may. It
// goes by what is committed anywhere. Only where users and roles were never changed, as far as this
// member knows, is it enough that it cannot be known.
func (b *backend) administrator(ctx context.Context) (token string, err error) {
	before := b.Store.Authority()
	if before.Enabled() || before.Revision() > 1 {
		if err := b.confirm(ctx); err != nil {
			return "", err
		}
	} else if l, _ := b.Store.Leadership(); l.Leader != 0 {
		brief, cancel := context.WithTimeout(ctx, enoughToAsk)
		_, _ = b.Store.Read(brief)
		cancel()
	}
	who, err := b.administer(ctx)
	if err != nil {
		return "", err
	}
	if text, given := tokenOf(ctx); given {
		return text, nil
	}
	state := b.Store.Authority()
	login, known := state.Login(who.User)
	if !state.Enabled() || !known {
		return "", nil
	}
	return state.Sign(authority.Token{User: who.User, Generation: login.Generation,
		Index: b.Store.AppliedIndex(), Issued: b.Now()}), nil
}

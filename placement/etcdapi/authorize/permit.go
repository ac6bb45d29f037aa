package authorize

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Permit returns on whose behalf a call acts, unless check refuses it according to the users and
// roles that this member knows. A refusal counts only when this member is up to date.
func (a *Authorizer) Permit(
	ctx context.Context, check func(*authority.State, *storepb.AuthInfo) error,
) (*storepb.AuthInfo, error) {
	who, err := a.permitted(ctx, check)
	if err == nil || !isRefusal(err) {
		return who, translate.Error(ctx, err)
	}
	if err := a.Confirm(ctx); err != nil {
		return nil, err
	}
	who, err = a.permitted(ctx, check)
	return who, translate.Error(ctx, err)
}

// permitted is Permit according to what this member knows now.
func (a *Authorizer) permitted(
	ctx context.Context, check func(*authority.State, *storepb.AuthInfo) error,
) (*storepb.AuthInfo, error) {
	who, err := a.Identify(ctx)
	if err != nil {
		return nil, err
	}
	return who, check(a.Store.Authority(), who)
}

// isRefusal reports whether other users and roles could have avoided an error.
func isRefusal(err error) bool {
	refused := (*authority.Error)(nil)
	return errors.As(err, &refused) || errors.Is(err, rpctypes.ErrGRPCInvalidAuthToken)
}

// Administer refuses all clients but administrators.
func (a *Authorizer) Administer(ctx context.Context) (*storepb.AuthInfo, error) {
	return a.Permit(ctx, (*authority.State).Admin)
}

// Identified refuses clients that name no user.
func (a *Authorizer) Identified(ctx context.Context) (*storepb.AuthInfo, error) {
	return a.Permit(ctx, (*authority.State).Identified)
}

// IdentifiedNow is Identified for answers that must include everything acknowledged before the
// call. When it returns, this member is up to date.
func (a *Authorizer) IdentifiedNow(ctx context.Context) (*storepb.AuthInfo, error) {
	if err := a.Confirm(ctx); err != nil {
		return nil, err
	}
	who, err := a.permitted(ctx, (*authority.State).Identified)
	return who, translate.Error(ctx, err)
}

// Unchanged returns an error if users and roles have changed since a check.
func (a *Authorizer) Unchanged(before *authority.State) error {
	now := a.Store.Authority()
	if now.Enabled() && (!before.Enabled() || now.Revision() != before.Revision()) {
		return rpctypes.ErrGRPCAuthOldRevision
	}
	return nil
}

// enoughToAsk is how long a member that knows of no users asks whether there are any. Without a
// quorum the call itself reports that.
const enoughToAsk = 250 * time.Millisecond

// administrator refuses clients that may not administer, and returns a token for those that may. It
// uses users and roles as committed anywhere. Only if they were never changed, as far as this
// member knows, does it accept that this cannot be confirmed.
func (a *Authorizer) administrator(ctx context.Context) (token string, err error) {
	if err := a.newest(ctx); err != nil {
		return "", err
	}
	who, err := a.Administer(ctx)
	if err != nil {
		return "", err
	}
	return a.TokenFor(ctx, who), nil
}

// newest makes this member up to date. If users and roles were never changed, as far as it knows,
// failing to confirm that is no error.
func (a *Authorizer) newest(ctx context.Context) error {
	before := a.Store.Authority()
	if before.Enabled() || before.Revision() > 1 {
		return a.Confirm(ctx)
	}
	if l, _ := a.Store.Leadership(); l.Leader != 0 {
		brief, cancel := context.WithTimeout(ctx, enoughToAsk)
		_, _ = a.Store.Read(brief)
		cancel()
	}
	return nil
}

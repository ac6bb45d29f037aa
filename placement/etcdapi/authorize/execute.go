package authorize

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// Execute executes a command for the client that makes a call, and waits for it for a limited time.
func (a *Authorizer) Execute(ctx context.Context, c *storepb.Command) (*storepb.Result, error) {
	return a.ExecuteWithin(ctx, backend.RequestTimeout, c)
}

// ExecuteWithin is Execute with another limit.
func (a *Authorizer) ExecuteWithin(
	ctx context.Context, limit time.Duration, c *storepb.Command,
) (*storepb.Result, error) {
	for attempt := 1; ; attempt++ {
		who, err := a.Permit(ctx, func(state *authority.State, who *storepb.AuthInfo) error {
			c.Auth = who
			return state.Command(c, a.Store.AttachedKeys)
		})
		if err != nil {
			return nil, err
		}
		// Every member checks it again when it applies the command.
		c.Auth = who
		limited, cancel := context.WithTimeout(store.WithClient(ctx, a.Party(ctx)),
			beforeDeadline(ctx, limit))
		result, err := a.Store.Execute(limited, c)
		cancel()
		switch {
		case err == nil:
			return result, nil
		case attempt == maxAttempts || !judgedByOld(who, err):
			return nil, translate.Error(ctx, err)
		}
		if a.Confirm(ctx) != nil {
			// Nothing was done, and an error of Confirm would hide that.
			return nil, rpctypes.ErrGRPCAuthOldRevision
		}
	}
}

// spared is kept of a call's time for the answer, so that its client learns that the command was
// not proposed, rather than nothing.
const spared = 100 * time.Millisecond

// beforeDeadline returns limit, or less if the call ends sooner.
func beforeDeadline(ctx context.Context, limit time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return limit
	}
	left := time.Until(deadline)
	return min(limit, left-min(spared, left/10))
}

// maxAttempts bounds how often a command is executed again because its user was checked against
// users and roles that have changed meanwhile.
const maxAttempts = 4

// judgedByOld reports that a command was refused, and had no effect, because this member knew older
// users and roles than those by which it was applied. If authentication was not enabled here, the
// command names no user, whatever credentials its client has sent.
func judgedByOld(who *storepb.AuthInfo, err error) bool {
	return errors.Is(err, authority.ErrOldRevision) ||
		who.Revision == 0 && errors.Is(err, authority.ErrUserEmpty)
}

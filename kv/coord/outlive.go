package coord

import (
	"context"
	"time"
)

// A holder often gives back what it holds under the context of the holding (Lock.Held and the
// like), which ends when the giving back begins: no work may go on by then. The call itself must go
// on. So these contexts carry what they belong to, and a call that ends one of them goes on under a
// context that does not end with it.

// belonging is the key under which a context carries the *heldKey or the *Ownership that it ends
// with, and sessionOf the key of the *Session.
type (
	belonging struct{}
	sessionOf struct{}
)

// outlive returns a context for a call that is about to end the context of owner. If ctx ends with
// owner, the returned context does not: it ends at the deadline of ctx, or after most if that is
// sooner. Otherwise, and if ctx has ended already, the returned context is ctx.
//
// A cancellation of a context between owner's and ctx is not noticed while the call is under way,
// since ctx has ended by then.
func outlive(ctx context.Context, key, owner any, most time.Duration) (context.Context,
	context.CancelFunc) {
	if ctx.Err() != nil || ctx.Value(key) != owner {
		return ctx, func() {}
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	deadline, limited := ctx.Deadline()
	if !limited {
		return longer, cancel
	}
	limitedToo, cancelToo := context.WithDeadline(longer, deadline)
	return limitedToo, func() { cancelToo(); cancel() }
}

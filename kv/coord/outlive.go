package coord

import (
	"context"
	"time"
)

// A holder often releases a lock under the context of the hold (Lock.Held and the like). This
// context ends when the release begins, so that no work goes on by then; but the releasing call
// itself must go on. So these contexts carry the object that they belong to, and a call that ends
// such an object goes on under a context that does not end with the object.

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
// The call does not notice the cancellation of a context between owner's and ctx, because ctx has
// ended by then.
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
